"""Generation beside training: in a process, in a thread, on a server. Staleness is bounded and counted."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legos_envs import Decision
from legos_envs.records import Episode, Trajectory, Turn, episode_from_json, episode_to_json
from legos_train import Actor, Arena, ConfigError, EpisodeRequest, Trainer, TrainingError
from legos_train.errors import Stopped
from legos_train.loss.batch import pack
from legos_train.run import build, overlap
from legos_train.run.alarm_actions import respond
from legos_train.run.batch_generators import ProcessGenerator, make_batch_generator
from legos_train.run.overlap import overlapped, split_stale
from legos_train.run.parts.monitor import Alarm
from legos_train.run.parts.parts import Best
from legos_train.run.stopping import Stopping
from tests.inference.live import LiveServer, serving
from tests.train.helpers import small


def run(trainer: Trainer) -> list[dict]:
    try:
        with Stopping(quiet=True) as stopping:
            return list(overlapped(trainer, 0, stopping))
    finally:
        trainer.parts.close()


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with serving("tiny") as one:
        yield one


@pytest.mark.quick("process")
@pytest.mark.parametrize("backend", ["process", "thread", "server"])
def test_batches_are_generated_ahead_and_never_too_old(backend: str, request: pytest.FixtureRequest) -> None:
    settings: dict[str, Any] = {"enabled": True, "max_off_policy_steps": 1, "queue": 4}
    urls = {"urls": (request.getfixturevalue("server").url,)} if backend == "server" else {}
    settings["backend"] = "auto" if urls else backend
    records = run(Trainer(build(small(steps=3, batch_size=4, asynchronous=settings, server=urls))))
    assert [r["step"] for r in records] == [1, 2, 3] and all(r["updates"] == 1 for r in records)
    assert max(r["staleness_max"] for r in records) <= 1
    assert all(r["dropped"]["stale_episodes"] == 0 for r in records), "the bound is kept by not running ahead"
    assert any(r["staleness_max"] == 1 for r in records), "nothing was generated ahead"
    # What the generator computed with the weights it was sent is what the learner computes with its own.
    fresh = [r["mismatch_max"] for r in records if "mismatch_max" in r]
    assert fresh and max(fresh) < 1e-4


@pytest.mark.slow
def test_without_staleness_it_alternates_and_gives_what_synchronous_training_gives() -> None:
    settings = {"enabled": True, "backend": "thread", "max_off_policy_steps": 0}
    there = run(Trainer(build(small(steps=2, batch_size=4, asynchronous=settings))))
    trainer = Trainer(build(small(steps=2, batch_size=4)))
    try:
        here = [trainer.step() for _ in range(2)]
    finally:
        trainer.parts.close()
    for a, b in zip(here, there, strict=True):
        assert a["reward"] == b["reward"] and a["action_tokens"] == b["action_tokens"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)


def episode(*versions: int, trainable: bool = True) -> Episode:
    turns = [Turn((), "x", policy_version=v) for v in versions]
    return Episode("e", 0, {}, {"a": Trajectory("a", "a", trainable, turns)})


def test_every_token_has_its_version_when_weights_change_in_the_middle_of_an_action() -> None:
    turn = Turn(
        ({"role": "user", "content": "go"},), "x", 0.0, None, (1, 2), (3, 4, 5), (-1.0,) * 3, 6, "stop", (6, 6, 7)
    )
    played = Episode("e", 0, {}, {"a": Trajectory("a", "a", True, [turn])})
    again = episode_from_json(episode_to_json(played))
    assert again == played
    batch = pack([again], [{"a": np.zeros(1)}], policy_version=7, max_staleness=1)
    assert batch.version.tolist() == [6, 6, 7]
    assert not len(pack([again], [{"a": np.zeros(1)}], policy_version=8, max_staleness=1)), "the oldest token counts"
    turn.token_versions = (6, 7)
    with pytest.raises(ValueError, match="3 action tokens but 2 token versions"):
        pack([played], [{"a": np.zeros(1)}])


@pytest.mark.parametrize(
    ("replay", "ages"),
    [
        pytest.param({"max_staleness": 0}, 2, marks=pytest.mark.slow),  # for batches used again; this run has none
        ({"reuse": 2}, 3),
    ],
)
def test_batches_ahead_are_young_enough_when_they_are_used(
    replay: dict[str, int], ages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is generated only where it will be, whatever `replay` says, so none is thrown away."""
    collected: list[tuple[int, int]] = []

    def counted(episodes: list[Episode], version: int, limit: int) -> tuple[list[Episode], int]:
        fresh, stale = split_stale(episodes, version, limit)
        collected.append((version, stale))
        return fresh, stale

    monkeypatch.setattr(overlap, "split_stale", counted)
    settings = {"enabled": True, "backend": "thread", "max_off_policy_steps": 2, "queue": 2}
    records = run(Trainer(build(small(steps=6, batch_size=2, asynchronous=settings, replay=replay))))
    assert [r["step"] for r in records] == list(range(1, 7)) and max(r["staleness_max"] for r in records) <= ages
    assert collected == [(version, 0) for version in range(0, 6, replay.get("reuse", 1))]


@pytest.mark.quick("settings2")
@pytest.mark.parametrize(
    "settings", [{}, *({"enabled": True, "backend": "thread", "max_off_policy_steps": ahead} for ahead in (1, 4))]
)
def test_a_batch_is_asked_for_the_step_that_it_is_first_used_in(settings: dict[str, Any]) -> None:
    """Leagues, samplers and users count optimiser steps, however many of them a batch is used for."""

    class Counted(Arena):
        def get_batch(self) -> list[EpisodeRequest]:
            steps.append(self.step)
            return super().get_batch()

    steps: list[int] = []
    arena = Counted()
    arena.add_env("KuhnPoker-v0")
    trainer = Trainer(build(small(steps=6, batch_size=2, replay={"reuse": 2}, asynchronous=settings), arena))
    if settings:
        run(trainer)
    else:
        for _ in range(6):
            trainer.step()
        trainer.parts.close()
    assert steps == [1, 3, 5], "and none is generated that no step would use"


def test_a_batch_that_is_too_old_as_a_whole_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def second_is_too_old(episodes: list[Episode], version: int, limit: int) -> tuple[list[Episode], int]:
        calls.append(version)
        return ([], len(episodes)) if len(calls) == 2 else (episodes, 0)

    monkeypatch.setattr(overlap, "split_stale", second_is_too_old)
    settings = {"enabled": True, "backend": "thread"}
    records = run(Trainer(build(small(steps=3, batch_size=8, asynchronous=settings))))
    assert calls == [0, 1, 1, 2] and [r["dropped"]["stale_episodes"] for r in records] == [0, 8, 0]


@pytest.mark.quick("learner1")
@pytest.mark.parametrize("learner", [[], [{"name": "all", "roles": ["player_0", "player_1"]}]])
def test_what_was_being_generated_when_weights_came_back_is_still_learned_from(learner: list[dict[str, Any]]) -> None:
    """Its tokens carry the step of the weights that were replaced, and of those that replaced them."""
    ahead = {"enabled": True, "backend": "thread"}
    trainer = Trainer(build(small(steps=9, batch_size=4, optim={"lr": 0.1}, learner=learner, asynchronous=ahead)))
    parts = trainer.parts
    try:
        parts.best = Best(0, "last", {}, parts.backend.snapshot(0))
        trainer.step()
        episodes = trainer.play(2)
        respond(parts, Alarm("worse", 1.0, 0.0, "rollback", "worse than before"))
        trainer.assign_credit(episodes, 1)
        record = trainer.learn(0.0)
        assert record["mismatch_max"] > 0.1 and record["updates"] == 1
        played = trainer.play(3)
        parts.backend.load(parts.best.weights)  # by nobody who says so
        trainer.assign_credit(played, 2)
        with pytest.raises(TrainingError, match="played by other weights"):
            trainer.learn(0.0)
    finally:
        parts.close()


def test_stale_episodes_are_dropped_before_they_are_used_and_counted() -> None:
    fresh, stale = split_stale([episode(5, 5), episode(3, 5), episode(1, trainable=False), episode(4)], 5, 1)
    assert [len(e.trajectories["a"].turns) for e in fresh] == [2, 1, 1] and stale == 1


def test_an_error_of_the_generating_side_ends_the_run() -> None:
    def broken(decision: Decision) -> str:
        raise OSError("the judge has gone")

    arena = Arena()
    arena.add_env("Nim-v0")
    arena.add_actor(Actor("player_1", model=broken))
    with pytest.raises(RuntimeError, match="the judge has gone"):
        run(Trainer(build(small(steps=2, batch_size=4, asynchronous={"enabled": True}), arena)))


def test_a_stop_while_the_worker_starts_leaves_neither_it_nor_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[Any] = []

    def stop(self: ProcessGenerator, data: object) -> None:
        begun.extend((self._process, *tmp_path.glob("legos-weights-*")))
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ProcessGenerator, "_send", stop)
    trainer = Trainer(build(small(batch_size=4, asynchronous={"enabled": True, "backend": "process"})))
    try:
        with pytest.raises(Stopped):
            make_batch_generator(trainer.parts)
    finally:
        trainer.parts.close()
    process, folder = begun
    assert process.poll() is not None and not folder.exists()


def test_what_cannot_be_sent_to_a_process_is_said() -> None:
    arena = Arena()
    arena.add_env("nim", lambda: __import__("legos_envs").make("Nim-v0"))
    trainer = Trainer(build(small(batch_size=4, asynchronous={"enabled": True, "backend": "process"}), arena))
    try:
        with pytest.raises(ConfigError, match="use 'thread'"):
            make_batch_generator(trainer.parts)
    finally:
        trainer.parts.close()


def test_episodes_survive_json() -> None:
    trainer = Trainer(build(small(batch_size=4)))
    try:
        for played in trainer.play(1):
            again = episode_from_json(episode_to_json(played))
            assert again == played or episode_to_json(again) == episode_to_json(played)
            turn = next(t for x in again.trajectories.values() for t in x.turns)
            assert turn.logprobs == tuple(float(v) for v in turn.logprobs or ()) and turn.policy_version == 0
    finally:
        trainer.parts.close()
