"""The replay buffer: how often a batch is used, when it is too old, and that it survives a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train import Trainer
from legos_train.config.sections import ReplaySettings
from legos_train.run import build
from legos_train.run.parts.replay import ReplayBatch, ReplayBuffer
from tests.train.helpers import small


def record(version: int, seed: int = 0) -> ReplayBatch:
    turn = Turn(({"role": "user", "content": "go"},), "[1]", 1.0, ("[1]",), (1, 2), (3,), (-0.5,), version, "stop")
    episode = Episode("Nim-v0", seed, {}, {"a": Trajectory("a", "player", True, [turn], info={"x": 1})}, group="1/0")
    return ReplayBatch([episode], [episode], [{"a": np.array([0.25])}], version, {"kept": 2.0})


def test_a_batch_is_used_once_by_default() -> None:
    buffer = ReplayBuffer(ReplaySettings())
    assert buffer.due(0)
    buffer.add(record(0))
    assert not buffer.due(0)
    taken, dropped = buffer.take(0)
    assert taken.version == 0 and not dropped and buffer.due(1) and len(buffer) == 0


def test_reuse_takes_the_least_used_and_of_these_the_newest() -> None:
    buffer = ReplayBuffer(ReplaySettings(reuse=2, max_staleness=3))
    buffer.add(record(0))
    assert buffer.take(0)[0].version == 0
    buffer.add(record(1))
    assert buffer.take(1)[0].version == 1
    assert buffer.take(2)[0].version == 1
    assert not buffer.due(3)


def test_old_batches_are_dropped_before_they_are_used_and_counted() -> None:
    buffer = ReplayBuffer(ReplaySettings(reuse=3, max_staleness=1))
    buffer.add(record(0))
    buffer.add(record(3))
    taken, dropped = buffer.take(3)
    assert taken.version == 3 and dropped == {"replay_stale": 1}
    with pytest.raises(LookupError, match="too old"):
        buffer.take(9)


def test_capacity_lets_the_oldest_go() -> None:
    buffer = ReplayBuffer(ReplaySettings(reuse=2, capacity=2))
    for version in range(4):
        buffer.add(record(version))
    assert [r.version for r in buffer.records] == [2, 3]


def test_what_was_kept_comes_back() -> None:
    buffer = ReplayBuffer(ReplaySettings(reuse=4, max_staleness=9))
    buffer.add(record(0))
    buffer.add(record(1, seed=5))
    buffer.take(1)
    again = ReplayBuffer(ReplaySettings(reuse=4, max_staleness=9))
    again.load(buffer.dump())
    assert again.dump() == buffer.dump() and [r.uses for r in again.records] == [r.uses for r in buffer.records]
    one = again.records[0]
    assert one.kept[0] is one.episodes[0] and one.advantages[0]["a"].dtype == np.float64


@pytest.mark.quick(1)
@pytest.mark.parametrize("replay", [{"reuse": 2, "max_staleness": 3}, {"reuse": 3, "max_staleness": 1}])
def test_a_reused_batch_is_trained_on_again_without_playing(replay: dict[str, int]) -> None:
    """Until it was used often enough or is too old, whatever comes first."""
    trainer = Trainer(build(small(steps=4, batch_size=8, replay=replay)))
    played: list[int] = []
    play = trainer.play
    trainer.play = lambda step: played.append(step) or play(step)  # type: ignore[method-assign, func-returns-value]
    try:
        records = [trainer.step() for _ in range(4)]
    finally:
        trainer.parts.close()
    assert played == [1, 3] and all(r["updates"] == 1 for r in records)
    assert [r["staleness_max"] for r in records] == [0, 1, 0, 1]
    assert [r["dropped"].get("replay_stale", 0) for r in records] == [0, 0, 8 if replay["reuse"] == 3 else 0, 0]
    assert all(r["dropped"]["stale"] == 0 for r in records)
    assert [r["tokens_per_second"] is not None for r in records] == [True, False, True, False], (
        "what was not played has no speed"
    )
    assert [(r["episodes"], r.get("replayed")) for r in records] == [(8, None), (0, 8), (8, None), (0, 8)]
