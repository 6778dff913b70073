"""What a dry run says of a step: measured on batches that grow, continued where the last is smaller than the run's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from legos_envs import Runner, make
from legos_train.loss.batch import Batch
from legos_train.model import Learner
from legos_train.run import Trainer, dry_run
from legos_train.run.dry_run import estimate, forecast
from legos_train.run.extrapolation import Measured, batch_sizes, continued, filled
from legos_train.run.preflight.legal_play import LegalMoves
from tests.train.helpers import small


def test_batches_grow_to_the_runs_in_whole_groups() -> None:
    assert batch_sizes(512, 1) == [16, 64, 256, 512]
    assert batch_sizes(64, 1) == [16, 64] and batch_sizes(8, 8) == [8, 8]
    assert batch_sizes(300, 12) == [12, 60, 252, 300]
    assert batch_sizes(600, 200) == [200, 600] and batch_sizes(16, 1) == [16, 16]


def step(size: int, play: float, learn: float, peak: float, *, turns: int = 0, part: int = 0) -> Measured:
    return Measured(size, turns or size, 50.0, part or size, play, learn, peak, 2 * peak)


def test_the_runs_own_batch_is_reported_as_it_was() -> None:
    steps = [step(64, 1.0, 1.0, 100.0), step(256, 1.5, 2.0, 130.0)]
    assert continued(steps, 256, 1 << 14) == steps[-1]
    first = step(64, 1.0, 1.0, 150.0)  # computed the reference, which the second found in a cache
    assert continued([first, steps[-1]], 256, 1 << 14) == replace(steps[-1], peak=150.0)


def test_a_larger_batch_is_on_the_line_through_the_last_two() -> None:
    steps = [step(64, 1.0, 1.0, 100.0), step(256, 1.5, 4.0, 130.0)]
    found = continued(steps, 640, 1 << 14)
    assert (found.play, found.learn, found.peak, found.process) == pytest.approx((2.5, 10.0, 190.0, 380.0))
    alone = continued([step(64, 1.0, 2.0, 100.0)], 128, 1 << 14)
    assert (alone.play, alone.learn, alone.peak, alone.process) == pytest.approx((2.0, 4.0, 200.0, 200.0))


def test_longer_episodes_are_not_taken_for_a_larger_batch() -> None:
    """Ten times the turns in four times the episodes: the next step has as many a game, and each costs as much."""
    steps = [step(64, 1.0, 1.0, 100.0, turns=128), step(256, 10.0, 10.0, 130.0, turns=1280)]
    found = continued(steps, 512, 1 << 14)
    assert found.turns == 2560 and found.play == found.learn == pytest.approx(20.0)
    shorter = [step(64, 1.0, 1.0, 100.0, turns=128), step(256, 0.5, 0.5, 130.0, turns=64)]
    assert continued(shorter, 512, 1 << 14).play == pytest.approx(1.0)


def test_memory_of_learning_grows_up_to_the_largest_part() -> None:
    steps = [step(64, 1.0, 1.0, 100.0, part=4000), step(256, 2.0, 4.0, 150.0, part=14000)]
    assert continued(steps, 1024, 16000).peak == pytest.approx(160.0)
    assert continued([*steps, step(512, 3.0, 5.0, 155.0, part=16000)], 1024, 16000).peak == 155.0


def test_the_ceiling_is_a_part_of_the_largest_size() -> None:
    steps = [step(64, 1.0, 1.0, 150.0, part=4000), step(256, 2.0, 4.0, 140.0, part=3000)]
    assert filled(steps, 50.0, 16000) == pytest.approx(50.0 + 400.0)
    assert filled(steps, 50.0, 2000) == 150.0


def test_what_rows_begin_with_comes_on_top_of_the_largest_part() -> None:
    steps = [replace(step(64, 1.0, 1.0, 150.0, part=4000), shared=2000.0)]
    assert filled(steps, 50.0, 16000) == pytest.approx(50.0 + 450.0)
    assert continued(steps, 640, 16000).part == 18000


@pytest.mark.slow
def test_what_is_measured_is_what_the_loss_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `expected` that is every action of every decision point, however few games are played."""
    seen = []
    update = Learner.update

    def watched(self: Learner, batch: Batch) -> dict[str, Any]:
        seen.append(len(np.unique(batch.sequence)))
        return update(self, batch)

    monkeypatch.setattr(Learner, "update", watched)
    estimate(small(batch_size=2, loss={"name": "expected"}))
    assert seen == [24, 24]


def test_without_invalid_moves_a_game_is_played_to_its_end() -> None:
    runner = Runner(LegalMoves(make("TicTacToe-v0")), 1)
    said = iter(["nonsense", "[99]", "I take [4]", *["[0]"] * 20])
    while not runner.done:
        for decision in runner.pending():
            runner.answer(decision, next(said))
    assert runner.episode.outcome != "invalid" and len(runner.episode.order) >= 5
    played = [text for _, text in runner.env.unwrapped.log]
    assert "I take [4]" in played and not {"nonsense", "[99]"} & set(played)


def test_a_dry_run_says_what_a_step_takes_without_the_invalid_moves_that_end_games_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(trainer: Trainer, size: int, _: Any) -> Measured:
        if isinstance(trainer.parts.arena.generator.rollouts.make_env("KuhnPoker-v0"), LegalMoves):  # type: ignore[union-attr]
            return step(size, 6.0, 30.0, 2.0**30, turns=10 * size)
        return replace(step(size, 1.0, 2.0, 2.0**20, turns=2 * size), broken=broken)

    monkeypatch.setattr(dry_run, "_step", measure)
    broken = 0.5
    found = forecast(small(batch_size=8))
    assert found.legal is not None and found.legal.turns == 80 and found.ceiling >= 2.0**30
    said = str(found)
    assert "end 50% of the episodes; without them 10.0 turns" in said
    assert "6 s if episodes keep this length, 1.2 minutes without invalid moves" in said
    broken = 0.05
    assert forecast(small(batch_size=8)).legal is None


@pytest.mark.slow
def test_games_get_longer_without_invalid_moves() -> None:
    found = forecast(small(env="ConnectFour-v0", batch_size=2))
    assert found.whole.broken == 1.0 and found.legal is not None and found.legal.broken == 0.0
    assert found.legal.turns >= 7 * 2 > found.whole.turns and found.ceiling >= found.legal.peak
