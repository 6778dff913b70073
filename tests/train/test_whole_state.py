"""Everything that a run remembers is in its checkpoint: league, ratings, monitor, stores, replay, several envs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.files import tensors
from legos_train import Trainer, train
from legos_train.run import build, state
from legos_train.run.parts.monitor import Alarm, CollapseMonitor
from legos_train.run.periodic_eval import evaluate
from tests.train.helpers import digest, small

EVERYTHING: dict[str, Any] = {
    "env": [{"id": "KuhnPoker-v0", "weight": 2.0}, {"id": "MatrixGame-v0", "args": {"game": "rps"}, "credit": "rae"}],
    "steps": 5,
    "batch_size": 4,
    "league": {"mode": "pfsp", "snapshot_every": 1, "pool": 3, "opponents": ("random",)},
    "replay": {"reuse": 2, "max_staleness": 4},
    "filter": {"draws": 0.5, "draw_retries": 1},
    "monitor": {"entropy": 100.0, "patience": 2, "window": 2, "action": "raise_kl"},
    "loss": {"magnet_every": 2},
    "checkpoint": {"every": 3, "keep": 9},  # with a batch that is to be used again
    "logs": {"rollouts_every": 1, "rollouts": 2},
}


class Interrupted(Exception):
    pass


def test_a_run_with_everything_on_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config=small(whole, **EVERYTHING), quiet=True)

    def stop(record: dict) -> None:
        if record["step"] == 4:  # a step after the checkpoint
            raise Interrupted

    with pytest.raises(Interrupted):
        train(config=small(broken, **EVERYTHING), quiet=True, on_step=stop)
    train(config=small(broken, **EVERYTHING), quiet=True, resume=True)

    names = sorted(p.name for p in (whole / "checkpoints/step_5").iterdir())
    assert {"adapter.safetensors", "magnet.safetensors", "replay.jsonl", "state.json"} <= set(names)
    assert sum(name.startswith("league_") for name in names) == 3, "the pool is in the checkpoint"
    for name in names:
        if name != "manifest.json":
            a, b = (run / "checkpoints/step_5" / name for run in (whole, broken))
            assert digest(a) == digest(b), f"{name} differs after the resume"
    assert digest(whole / "rollouts.jsonl") == digest(broken / "rollouts.jsonl")
    state = json.loads((whole / "checkpoints/step_5/state.json").read_text())
    assert state["learner"]["kl_factor"] > 1, "the monitor acted"
    assert state["league"]["ratings"] and state["league"]["pool"]


def test_other_models_forget_what_they_computed_before_a_checkpoint_too() -> None:
    """A resumed run begins with new engines for them: `rollouts.jsonl` was another, in the last bits."""
    trainer = Trainer(build(small(batch_size=4, league={"mode": "fixed", "opponents": ("tiny",)}, eval={"games": 2})))
    try:
        trainer.play(1)
        measurer = trainer.parts.measurer
        for task in measurer.tasks.values():
            measurer._played(task, "policy", task.sides, measurer.opponent(task, "tiny"), 2)
        rosters = (trainer.parts.sync.local.roster, measurer.roster)  # type: ignore[attr-defined]
        engines = [e for roster in rosters for e, _ in roster._cast._engines.values()]
        assert len(engines) == 2 and all(engine._stepper.kv.nbytes and engine._runner._recent for engine in engines)
        trainer.parts.drop_caches()
        assert not any(engine._stepper.kv.nbytes or engine._runner._recent for engine in engines)
    finally:
        trainer.parts.close()


def test_only_the_learners_seat_is_trained_and_seats_are_balanced() -> None:
    league = {"mode": "fixed", "opponents": ("random",)}
    trainer = Trainer(build(small(batch_size=16, league=league)))
    try:
        episodes = trainer.play(1)
        live = [[a for a, t in e.trajectories.items() if t.trainable] for e in episodes]
        assert all(len(agents) == 1 for agents in live)
        seats = [agents[0] for agents in live]
        assert seats.count("player_0") == seats.count("player_1") == 8
        others = [t for e in episodes for t in e.trajectories.values() if not t.trainable]
        assert all(t.info["untrained"] == "played by random" for t in others)
        assert all(turn.action_tokens is None for t in others for turn in t.turns)
        record = trainer.step()
        assert record["league"]["members"] == 1 and record["updates"] == 1
    finally:
        trainer.parts.close()


def test_a_snapshot_plays_with_its_own_weights() -> None:
    """After a step with a large learning rate, the opponent `step_0` still answers as the policy did before."""
    trainer = Trainer(
        build(small(batch_size=8, steps=3, optim={"lr": 0.01}, league={"mode": "fsp", "snapshot_every": 5}))
    )
    try:
        probe = tuple(next(t for e in trainer.play(1) for t in e.trajectories["player_0"].turns).prompt_tokens or ())
        before = trainer.parts.engine.next_logits([probe], "policy")
        trainer.step()
        assert np.allclose(trainer.parts.engine.next_logits([probe], "step_0"), before, atol=1e-4)
        assert not np.allclose(trainer.parts.engine.next_logits([probe], "policy"), before, atol=1e-2)
        (opponent,) = {t.info["player"] for e in trainer.play(2) for t in e.trajectories.values() if not t.trainable}
        assert opponent == "league:step_0"
    finally:
        trainer.parts.close()


def test_psro_fills_its_payoff_matrix_by_playing() -> None:
    league = {"mode": "psro", "snapshot_every": 1, "payoff_games": 2}
    trainer = Trainer(build(small(batch_size=4, steps=2, league=league)))
    try:
        trainer.step()
        trainer.step()
        trainer.next_requests(3)
        assert trainer.parts.league is not None and not trainer.parts.league.missing_pairs()
        assert sum(trainer.parts.league.mixture().values()) == pytest.approx(1.0)
    finally:
        trainer.parts.close()


def test_an_injected_league_survives_a_resume(tmp_path: Path) -> None:
    monitor = {"entropy": 100.0, "patience": 1, "window": 1, "action": "inject_opponents"}
    config = small(tmp_path, batch_size=8, steps=4, monitor=monitor)
    trainer = Trainer(build(config))
    try:
        record = trainer.step()
        assert record["alarms"][0]["name"] == "entropy" and "random play" in record["alarms"][0]["done"]
        assert trainer.parts.league is not None and trainer.parts.league.members == ["random"]
        state.save(trainer.parts, tmp_path / "checkpoints")
        after = trainer.step()
    finally:
        trainer.parts.close()
    again = Trainer(build(config, run_id=trainer.parts.run_id))
    try:
        assert state.restore(again.parts, tmp_path / "checkpoints") == 1
        assert again.parts.league is not None and again.parts.league.settings == trainer.parts.league.settings
        assert (again.parts.league.settings.opponents, again.parts.league.settings.latest) == (("random",), 0.5)
        repeated = again.step()
        assert repeated["reward"] == after["reward"] and repeated["loss"] == after["loss"]
    finally:
        again.parts.close()


def test_stop_ends_the_run_with_its_checkpoint(tmp_path: Path) -> None:
    monitor = {"entropy": 100.0, "patience": 2, "window": 1, "action": "stop"}
    config = small(tmp_path / "run", batch_size=4, steps=9, monitor=monitor, checkpoint={"every": 1})
    result = train(config=config, quiet=True)
    assert result.steps == 2 and "entropy" in (result.stopped or "")
    assert all((tmp_path / f"run/checkpoints/step_{step}/manifest.json").exists() for step in (1, 2))
    (tmp_path / "run/result.json").unlink()
    again = train(config=config, quiet=True, resume=True)
    assert again.steps == 2 and again.stopped == result.stopped, "a run that was stopped stays so"


@pytest.mark.quick("ahead1")
@pytest.mark.parametrize("ahead", [{}, {"enabled": True, "backend": "thread"}])
def test_an_evaluation_that_stops_a_run_is_its_last(
    tmp_path: Path, ahead: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step follows; what had not been measured yet is, and the checkpoint is written."""
    worse = Alarm("worse", 1.0, 0.0, "stop", "worse than before")
    monkeypatch.setattr(CollapseMonitor, "check_measured", lambda self, step, *tables: [worse] if step == 2 else [])
    held_out = {"every": 2, "env": [{"id": "MatrixGame-v0", "name": "rps", "every": 0}]}
    settings: dict[str, Any] = {"monitor": {"action": "stop"}, "eval": held_out, "asynchronous": ahead}
    result = train(small(tmp_path / "run", batch_size=4, steps=9, **settings), quiet=True)
    assert result.steps == 2 and result.stopped == "worse than before"
    assert {"nash_conv", "rps/nash_conv"} <= set(result.last)
    assert (tmp_path / "run/checkpoints/step_2/manifest.json").exists()


def test_a_rollback_brings_back_the_best_weights_and_forgets_all_others() -> None:
    monitor = {"entropy": 100.0, "patience": 2, "window": 1, "action": "rollback"}
    loss = {"magnet_every": 1}
    trainer = Trainer(build(small(batch_size=8, steps=9, monitor=monitor, loss=loss, optim={"beta1": 0.9})))
    try:
        trainer.step()
        evaluate(trainer.parts)
        assert trainer.parts.best is not None
        record = trainer.step()
        assert f"restored the weights of step {trainer.parts.best.step}" in record["alarms"][0]["done"]
        backend: Any = trainer.parts.backend
        state = {name: tensors.from_bytes(make()) for name, make in backend.save_state().groups.items()}
        best = trainer.parts.best.weights.content
        for found in (state["adapter"], state["magnet"], trainer.parts.backend.average(2).content):
            assert all(np.array_equal(found[name], kept) for name, kept in best.items())
        moments = [np.array(value) for name, value in state["optimizer"].items() if name.endswith(("/m", "/v"))]
        assert moments and not any(np.any(value) for value in moments)
        assert trainer.step()["updates"] == 1
    finally:
        trainer.parts.close()


def test_a_rollback_that_came_too_early_comes_again() -> None:
    monitor = {"entropy": 100.0, "patience": 1, "window": 1, "action": "rollback"}
    trainer = Trainer(build(small(batch_size=8, steps=9, monitor=monitor)))
    try:
        assert trainer.step()["alarms"][0]["done"] == "no weights to go back to yet"
        evaluate(trainer.parts)
        assert trainer.step()["alarms"][0]["done"] == "restored the weights of step 1"
    finally:
        trainer.parts.close()


def test_a_resumed_run_has_the_past_and_the_best_that_it_had(tmp_path: Path) -> None:
    trainer = Trainer(build(small(batch_size=8)))
    trainer.step()
    evaluate(trainer.parts)
    best = trainer.parts.best
    trainer.parts.past[1] = trainer.parts.backend.snapshot(1)
    trainer.step()
    state.save(trainer.parts, tmp_path)
    trainer.parts.close()
    again = Trainer(build(small(batch_size=8), fresh=False, run_id=trainer.parts.run_id))
    assert state.restore(again.parts, tmp_path) == 2
    ((step, there),), kept = again.parts.past.items(), trainer.parts.past[1].content
    assert step == there.version == 1 and there.content.keys() == kept.keys()
    assert all(np.array_equal(there.content[name], kept[name]) for name in kept)
    now = again.parts.backend.policy.trainable()
    assert any(not np.array_equal(now[name], kept[name]) for name in kept), "it is the past"
    back = again.parts.best
    assert best is not None and back is not None
    assert (back.step, back.kind, back.numbers) == (best.step, best.kind, best.numbers)
    assert all(np.array_equal(back.weights.content[name], value) for name, value in best.weights.content.items())
    again.parts.close()
