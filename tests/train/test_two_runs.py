"""Runs that share a server: each is the run it is alone, and whatever is not of its own weights stops it."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from inference import Completion, InferenceError, Request, SamplingParams, UnknownAdapter
from legos_train import Trainer
from legos_train.errors import TrainingError
from legos_train.rollout.players import RemoteEngine, remote
from legos_train.run import build
from tests.inference.live import LiveServer, wait_until
from tests.train.helpers import small

EXACT: dict[str, Any] = {"engine": {"max_rows": 1, "prefix_cache_bytes": 0}}
"""Every request runs by itself, so results do not depend, in their last bit, on who else asks."""
Weights = dict[str, mx.array]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    one = LiveServer("tiny", **EXACT)
    yield one
    one.stop()


def served(server: LiveServer) -> dict[str, Any]:
    """The adapters that a server has now."""
    return dict(server.engine.worker.call(lambda engine: engine.adapters()).result(10))


def started(server: LiveServer, **settings: Any) -> Trainer:
    return Trainer(build(small(steps=3, batch_size=2, server={"urls": (server.url,)}, **settings)))


LEAGUE = {"mode": "fsp", "snapshot_every": 1, "pool": 2, "latest": 0.25, "opponents": ("base",)}


def test_two_runs_on_one_server_end_with_the_bytes_that_each_has_alone(server: LiveServer) -> None:
    """One of them with a league. They take turns step by step, in the middle of each other."""
    settings: list[dict[str, Any]] = [{"seed": 0}, {"seed": 1, "league": LEAGUE, "optim": {"lr": 3e-3}}]

    def ended(*runs: dict[str, Any]) -> list[bytes]:
        trainers: list[Trainer] = []
        try:
            for one in runs:
                trainers.append(started(server, **one))
            for _ in range(2):
                for trainer in trainers:
                    assert trainer.step()["mismatch_max"] < 1e-4
            current = [trainer.parts.sync.generator.engine for trainer in trainers]  # type: ignore[attr-defined]
            wanted = {name for engine in current for name in engine._names.values()}
            wait_until(lambda: served(server).keys() == wanted)
            names = served(server).keys()
            ids = [trainer.parts.run_id for trainer in trainers]
            assert len({*ids}) == len(ids) and {name.partition(".")[0] for name in names} == {*ids}
            assert len(names) == sum(1 + len(t.parts.league.pool if t.parts.league else ()) for t in trainers)
            return [trainer.parts.backend.fingerprint() for trainer in trainers]
        finally:
            for trainer in trainers:
                trainer.parts.close()

    together = ended(*settings)
    assert served(server) == {}, "runs that have ended leave nothing behind"
    assert together == [*ended(settings[0]), *ended(settings[1])] and together[0] != together[1]


@pytest.fixture
def other_weights() -> Callable[[Trainer], Weights]:
    """Weights of the same shapes that play quite differently."""

    def make(trainer: Trainer) -> Weights:
        keys = iter(mx.random.split(mx.random.key(5), 1000))
        own = trainer.parts.backend.snapshot(0).content
        weights = {name: mx.random.normal(w.shape, key=next(keys)) * 0.2 for name, w in own.items()}
        mx.eval(weights)
        return weights

    return make


def test_answers_by_other_weights_under_the_right_name_and_version_stop_the_run(
    server: LiveServer, other_weights: Callable[[Trainer], Weights], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "OUTAGE", 0.5)
    trainer = started(server)
    try:
        engine: Any = trainer.parts.sync.generator.engine  # type: ignore[attr-defined]
        name, weights = engine.name_of("policy"), other_weights(trainer)
        wait_until(lambda: name in served(server))  # else its upload is refused, and nobody takes the others away
        server.engine.worker.call(lambda e: e.publish(name, weights, scale=8.0, version=0)).result(10)
        before = trainer.parts.backend.fingerprint()
        with pytest.raises(InferenceError, match=rf"different weights for '{re.escape(name)}'|published with other"):
            trainer.step()
        assert (trainer.learner.step, trainer.parts.backend.fingerprint()) == (0, before)
    finally:
        trainer.parts.close()


def test_a_policy_that_is_not_the_learners_stops_the_run_before_it_learns(
    other_weights: Callable[[Trainer], Weights],
) -> None:
    def stepped(**sampling: Any) -> Trainer:
        trainer = Trainer(build(small(steps=3, batch_size=8, sampling=sampling)))
        trainer.parts.engine.publish("policy", other_weights(trainer), scale=8.0, version=0)
        before = trainer.parts.backend.fingerprint()
        try:
            trainer.step()
        except TrainingError:
            assert (trainer.learner.step, trainer.parts.backend.fingerprint()) == (0, before)
            raise
        finally:
            trainer.parts.close()
        return trainer

    with pytest.raises(
        TrainingError, match=r"disagree by \d.* nats .*at most 0\.1 are accepted\).*server\.urls.*--resume"
    ):
        stepped()
    assert stepped(max_mismatch=100.0).learner.step == 1


# --- names -----------------------------------------------------------------------------------------------------------


def connected(server: LiveServer, **options: Any) -> RemoteEngine:
    engine = RemoteEngine((server.url,), **options)
    engine.background.call(engine.fleet.start())
    return engine


LONG = "runs/x y.step_40" * 9


@functools.cache
def weights(seed: int) -> Weights:
    path = "model.layers.0.self_attn.q_proj"
    from inference.adapters import linear_shapes
    from inference.loading import load

    width, out = linear_shapes(load("tiny")[0])[path]
    pair = {f"{path}.lora_a": mx.ones((width, 2)) * 0.01 * seed, f"{path}.lora_b": mx.ones((2, out))}
    mx.eval(pair)
    return pair


def said(engine: RemoteEngine, adapter: str | None) -> Completion:
    number = engine.submit(Request((5, 6, 7), SamplingParams(max_tokens=3, seed=1), adapter))
    while not (done := engine.step()):
        continue
    assert [one.request_id for one in done] == [number]
    return done[0]


def test_every_publication_has_a_name_of_its_own_and_the_last_one_answers(server: LiveServer) -> None:
    engine = connected(server, run="a" * 12)
    try:
        first = engine.publish("policy", weights(1), scale=1.0, version=4)
        assert said(engine, "policy").adapter_digest == first
        again = engine.publish("policy", weights(2), scale=1.0, version=4)  # a rollback: the same step, other weights
        odd = engine.publish(LONG, weights(3), scale=1.0, version=40)
        names = [f"{'a' * 12}.policy-v4-{again[:12]}", f"{'a' * 12}.p_40runs_x_y_step_40-v40-{odd[:12]}"]
        assert names == [engine.name_of("policy"), engine.name_of(LONG)]
        done = said(engine, "policy")
        assert (done.adapter, done.policy_version, done.adapter_digest) == ("policy", 4, again) and again != first
        assert said(engine, LONG).adapter_digest == odd and said(engine, None).adapter_digest is None
        wait_until(lambda: served(server).keys() == {*names})
        engine.unpublish(LONG)
        wait_until(lambda: [one.digest for one in served(server).values()] == [again])
        with pytest.raises(UnknownAdapter, match=r"no adapter 'gone' is published \(published: policy\)"):
            engine.submit(Request((5,), SamplingParams(), "gone"))
        with pytest.raises(ValueError, match="mode must be 'pin', got 'abort'"):
            engine.publish("policy", weights(1), scale=1.0, version=5, mode="abort")
        assert engine.publish("policy", weights(1), scale=1.0, version=4) == first, "and back"
        assert said(engine, "policy").adapter_digest == first
    finally:
        engine.close()
    assert served(server) == {}


def test_a_request_keeps_the_version_that_it_was_submitted_under(server: LiveServer) -> None:
    engine = connected(server)
    try:
        digests, numbers = [], []
        for version in (1, 2, 3):
            digests.append(engine.publish("policy", weights(version), scale=1.0, version=version))
            numbers.append(engine.submit(Request((5, 6, 7), SamplingParams(max_tokens=3, seed=1), "policy")))
        found: dict[int, Completion] = {}
        while len(found) < 3:
            found |= {done.request_id: done for done in engine.step()}
        assert [(found[n].policy_version, found[n].adapter_digest) for n in numbers] == list(enumerate(digests, 1))
    finally:
        engine.close()


def test_everything_is_closed_although_a_part_of_it_fails(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = connected(server)
    really, closed = engine.fleet.close, []

    async def broken(prefix: str) -> None:
        raise RuntimeError("the names cannot be read")

    async def close() -> None:
        await really()
        closed.append(True)
        raise OSError("no socket")

    monkeypatch.setattr(engine.fleet.adapters, "clear", broken)
    monkeypatch.setattr(engine.fleet, "close", close)
    with pytest.raises(OSError, match="no socket") as caught:
        engine.close()
    assert str(caught.value.__context__) == "the names cannot be read"
    assert closed and not engine.background._thread.is_alive()


@pytest.mark.slow
def test_an_upload_under_way_when_the_run_ends_leaves_nothing_behind(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = server.app.server.adapters
    really, begun = adapters._install, threading.Event()

    async def late(*arguments: Any) -> Any:
        begun.set()
        await asyncio.sleep(0.3)
        return await really(*arguments)

    monkeypatch.setattr(adapters, "_install", late)
    engine = connected(server)
    engine.publish("policy", weights(1), scale=1.0)
    assert begun.wait(10)
    engine.close()
    time.sleep(0.6)
    assert served(server) == {}


@pytest.mark.slow
def test_what_a_killed_session_left_goes_when_the_run_is_resumed(server: LiveServer) -> None:
    killed, bystander = connected(server, run="a" * 12), connected(server, run="b" * 12)
    killed.publish("policy", weights(1), scale=1.0, version=9)
    bystander.publish("policy", weights(2), scale=1.0, version=9)
    for engine in (killed, bystander):
        said(engine, "policy")
    resumed = RemoteEngine((server.url,), run="a" * 12)
    try:
        resumed.start()
        assert served(server).keys() == {bystander.name_of("policy")}
        digest = resumed.publish("policy", weights(3), scale=1.0, version=5)
        assert said(resumed, "policy").adapter_digest == digest
        assert said(killed, "policy").policy_version == 9, "who was not dead after all brings its own weights again"
    finally:
        for engine in (killed, bystander, resumed):
            engine.close()
    assert served(server) == {}


def test_a_rank_that_follows_uses_what_the_first_has_brought_and_takes_nothing_away(server: LiveServer) -> None:
    leads = connected(server, run="c" * 12)
    follows = connected(server, run="c" * 12, follows=True)
    try:
        for seed, version in ((1, 0), (2, 1)):
            digest = leads.publish("policy", weights(seed), scale=1.0, version=version)
            assert follows.publish("policy", weights(seed), scale=1.0, version=version) == digest
            assert said(follows, "policy").adapter_digest == said(leads, "policy").adapter_digest == digest
        wait_until(lambda: len(served(server)) == 1)
    finally:
        follows.close()
        assert len(served(server)) == 1, "a rank that follows takes nothing away"
        leads.close()
    assert served(server) == {}
