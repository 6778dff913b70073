"""`--backend tinker` on a Tinker API in this process (tinker_stub.py); the real server: tests/interop/test_skyrl.py."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from inference import Request, SamplingParams, load, read_adapter
from legos_train import Actor, Arena, ConfigError, Trainer, TrainingError, train
from legos_train.config import TrainConfig
from legos_train.loss import LossSettings
from legos_train.loss.token_loss import Samples
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy
from legos_train.model.tinker.reduction import REDUCTIONS, recognise, undone
from legos_train.model.tinker.tinker_backend import _loss
from legos_train.model.tinker.unsupported import SERVICE_LOSSES
from legos_train.run import build
from tests.train.helpers import small
from tests.train.tinker_stub import BASE, URL, Server, install

NO_KL = {"kl": 0.0, "kl_end": None}


def config(run_dir: Path | None = None, **changes: Any) -> TrainConfig:
    own = {"backend": "tinker", "tinker": {"url": URL, "base": BASE}, "average": {"kind": "none"}}
    return small(run_dir, **{**own, **changes})


def trainer_of(settings: TrainConfig) -> Trainer:
    return Trainer(build(settings, run_id="0123456789ab"))


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def cosine(trainer: Trainer, at_server: Any) -> tuple[float, float]:
    """Of the server's gradient of the trainer's batch and MLX's, with the ratio of their norms."""
    parts, batch = trainer.parts, trainer.batch
    assert batch is not None
    backend: Any = parts.backend
    weights = dict(backend.snapshot(0).content)
    policy = LoRAPolicy(load("tiny")[0], parts.config.lora)
    policy.load(weights)
    settings = parts.learner.settings(1)
    if settings.needs_start:  # samples that are stale, equal ones alike
        stale = batch.old_logprobs + np.where(batch.target % 2 == 0, 0.05, -0.05).astype(np.float32)
        batch = backend.prepare(replace(batch, old_logprobs=stale), settings)
        plain = settings.model_copy(update={"truncate_ratio": None, "mask_ratio": None})
        _, without, _ = loss_and_grad(policy, batch, plain)
    _, wanted, _ = loss_and_grad(policy, batch, settings)
    if settings.needs_start:
        assert any(not np.allclose(np.array(wanted[n]), np.array(without[n]), rtol=1e-3) for n in wanted)
    backend.forward_backward(batch, settings, parts.learner.step)
    got, scale = at_server.grads, at_server.policy.lora.scale / parts.config.lora.scale
    at_server.grads = None
    # B was multiplied with `scale` on its way here: dL/dB there is `scale` times what it is here
    pairs = [(np.array(got[n]) / (scale if n.endswith("_b") else 1), np.array(wanted[n])) for n in wanted]
    a, b = (np.concatenate([pair[i].ravel() for pair in pairs]).astype(np.float64) for i in (0, 1))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), float(np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.quick("ppo-mean over sequences of the mean*")
@pytest.mark.parametrize(
    ("name", "reduction", "aggregation", "memory", "corrections"),
    [
        ("ppo", "mean over sequences of the mean", "sequence", "state", {}),
        ("importance_sampling", "sum", "token", "state", {"truncate_ratio": 1.02}),
        ("cispo", "mean over tokens", "constant", "chat", {}),
        (
            "ppo",
            "mean over sequences of the sum",
            "token",
            "chat",
            {"mask_ratio": (0.98, 1.02), "kl": 0.0, "kl_end": None},
        ),
    ],
)
def test_gradients_are_those_of_mlx(
    patch: pytest.MonkeyPatch, name: str, reduction: str, aggregation: str, memory: str, corrections: dict[str, Any]
) -> None:
    """Whatever the server divides by, with turns of unequal length, the KL in the advantages, and stale samples.

    Masked ones without the KL: the loss's ratio, which is 1 again where truncation corrects it, acts on it there.
    """
    install(patch, Server(reduction))
    loss = {"name": name, "aggregation": aggregation, "constant": 3.0, "kl_estimator": "k3", **corrections}
    game = {"env": "LeducPoker-v0", "env_args": {"memory": memory}, "batch_size": 2}
    trainer = trainer_of(config(**game, loss=loss, optim={"lr": 2e-3}))
    trainer.step()  # so that the policy is not the base any more, and the KL pulls
    trainer.assign_credit(trainer.play(2), 1)
    trainer.batch = trainer.pack(trainer.parts.replay.take(1)[0])
    assert trainer.parts.backend.found.reduction == reduction  # type: ignore[attr-defined]
    found, norm = cosine(trainer, trainer.parts.backend.training.client)  # type: ignore[attr-defined]
    assert found > 0.99999 and norm == pytest.approx(1, abs=1e-3)
    trainer.parts.close()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("reduction", "clips", "frozen"), [("sum", True, True), ("mean over sequences of the mean", False, False)]
)
def test_what_a_server_does_is_found_by_trying(
    patch: pytest.MonkeyPatch, reduction: str, clips: bool, frozen: bool
) -> None:
    install(patch, Server(reduction, clips=clips, frozen=frozen))
    parts = build(config())
    found: Any = parts.backend.found  # type: ignore[attr-defined]
    assert (found.reduction, found.clips, found.frozen) == (reduction, clips, frozen)
    parts.close()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_recognised_by_what_it_does_and_undone(name: str) -> None:
    divisor = REDUCTIONS[name]
    one, longer, both = (divisor(np.array(n, dtype=float))[0] for n in ([7], [36], [7, 36]))
    assert recognise(3.0 / one, 2.8 / longer, 3.1 / both, (7, 36)) == name
    lengths = [5, 9, 30]
    assert np.allclose(undone(name, lengths) / divisor(np.array(lengths, dtype=float)), 1)


def test_an_unknown_reduction_is_no_guess() -> None:
    with pytest.raises(ValueError, match=r"a longer sequence the gradient of a token is 0\.700"):
        recognise(1.0, 0.7, 0.7, (7, 36))


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_a_run_with_a_league_is_killed_and_goes_on(patch: pytest.MonkeyPatch, tmp_path: Path, frozen: bool) -> None:
    """Snapshots stay what they were as opponents, the state comes back, and the adapter here is the one there."""
    server = install(patch, Server(frozen=frozen))
    league = {"mode": "fsp", "snapshot_every": 1, "latest": 0.5}
    settings = config(tmp_path / "run", steps=3, batch_size=4, league=league, checkpoint={"every": 1})
    seen: list[Any] = []

    def kill(record: Any) -> None:
        seen.append(record)
        if record["step"] == 2:
            raise KeyboardInterrupt  # after its row, before its checkpoint

    with pytest.raises(KeyboardInterrupt):
        train(settings, quiet=True, on_step=kill)
    result = train(settings, quiet=True, resume=True, on_step=seen.append)
    assert [record["step"] for record in seen] == [1, 2, 2, 3] and result.steps == 3
    assert max(record["mismatch_max"] for record in seen) < 1e-4
    assert seen[-1]["league"]["members"] == 4 and 0 < seen[-1]["league"]["win_rate"] < 1
    adapter = read_adapter(tmp_path / "run/last")
    there = server.saved[adapter.config["legos"]["tinker"]]
    scale = 32 / 4 / settings.lora.scale
    for weight, matrix in there.items():
        own = np.array(adapter.weights[weight]) / (scale if weight.endswith("_b") else 1)
        assert np.allclose(own, np.array(matrix), atol=1e-6)


def test_a_snapshot_stays_while_training_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Also at a server that goes on training what it has saved: there it is a copy with a place of its own."""
    install(patch, Server(frozen=False))
    trainer = trainer_of(config(league={"mode": "fsp", "snapshot_every": 1}, batch_size=2))
    remote: Any = trainer.parts.sync.generator.engine  # type: ignore[attr-defined]
    prompt = [list(range(5, 15))]
    before = remote.next_logits(prompt, "step_0")
    trainer.step()
    assert np.array_equal(before, remote.next_logits(prompt, "step_0"))
    assert not np.array_equal(before, remote.next_logits(prompt, "policy"))
    trainer.parts.close()


def test_measuring_without_the_base_here_gives_the_same_exact_number(patch: pytest.MonkeyPatch) -> None:
    install(patch, Server())
    numbers = []
    for mirror in (True, False):
        parts = trainer_of(config(tinker={"url": URL, "base": BASE, "mirror": mirror})).parts
        numbers.append(parts.measurer.measure("policy"))
        assert (parts.place.base is not None) == mirror
        parts.close()
    assert numbers[0]["nash_conv"] == pytest.approx(numbers[1]["nash_conv"], abs=1e-5)


def test_aborted_requests_are_not_asked_for_and_leave_nothing_behind(patch: pytest.MonkeyPatch) -> None:
    server = install(patch, Server())
    trainer = trainer_of(config(tinker={"url": URL, "base": BASE, "in_flight": 2}))
    engine: Any = trainer.parts.sync.generator.engine  # type: ignore[attr-defined]
    server.calls.clear()
    ids = [engine.submit(Request(range(5, 15), SamplingParams(max_tokens=2, seed=i))) for i in range(6)]
    engine.abort(ids[0])  # before anything was sent
    found = {one.request_id for one in engine.step()}
    engine.abort(ids[5])  # one that waits, since two at a time are asked for
    for _ in range(9):
        found |= {one.request_id for one in engine.step()}
    assert found == {*ids[1:5]} and sum(server.calls) == 4, "what nobody waits for is not paid for"
    for one in ids:
        engine.abort(one)  # as clients do that clean up: they are answered
    assert not engine._wanted
    trainer.parts.close()


@pytest.mark.slow
def test_equal_prompts_are_one_call(patch: pytest.MonkeyPatch) -> None:
    server = install(patch, Server())
    trainer = trainer_of(config(batch_size=64))
    server.calls.clear()
    trainer.play(1)
    assert sum(server.calls) >= 128 and len(server.calls) < 40
    trainer.parts.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"average": {"kind": "ema"}, "loss": {"kl_estimator": "exact"}}, "'k3'.*average.kind = 'ema'"),
        ({"loss": {"name": "gspo"}}, "it has ppo, importance_sampling, cispo"),
        ({"monitor": {"action": "rollback"}}, "use 'stop'"),
        ({"loss": {"entropy": 0.1}}, r"loss\.entropy needs whole distributions"),
        ({"init_adapter": "runs/x/adapter"}, "init_adapter, .* need own weights"),
        ({"league": {"mode": "fsp", "pool_from": "runs/x"}}, r"league\.pool_from .* own weights"),
        ({"loss": {"magnet_every": 3}}, r"loss\.magnet_every need own weights"),
        ({"asynchronous": {"enabled": True, "in_flight": "keep"}}, "use 'pin'"),
        ({"sampling": {"thinking_tokens": 4}}, r"sampling\.thinking_tokens, which closes thoughts"),
        (
            {"actors": {"player_0": {"model": "base", "top_k": 3, "top_p": 0.9, "thinking_tokens": 4}}},
            r"actors\.player_0\.top_k; it has temperature, top_p; actors\.player_0\.thinking_tokens, which closes",
        ),
        ({"tinker": {"url": URL, "base": "other/model"}}, "does not serve 'other/model'; it serves stub/tiny"),
        ({"loss": {"name": "cispo"}}, "cannot compute the gradient of the loss 'cispo': ValueError: unknown loss"),
    ],
)
def test_what_cannot_work_is_one_message_before_the_first_step(
    patch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    install(patch, Server(losses=("ppo",)))
    with pytest.raises(ConfigError, match=message):
        build(config(**changes))


def test_a_seat_of_an_arena_is_not_sampled_otherwise_than_it_says(patch: pytest.MonkeyPatch) -> None:
    """The config knows nothing of it, so the engine refuses the request."""
    install(patch, Server())
    arena = Arena()
    arena.add_env("KuhnPoker-v0")
    arena.add_actor(Actor("player_1", model="base", top_k=3, top_p=0.9))
    trainer = Trainer(build(config(batch_size=2), arena))
    with pytest.raises(ConfigError, match="an actor has top_k, which the Tinker API lacks; it has temperature, top_p"):
        trainer.play(1)
    trainer.parts.close()


def test_a_moving_server_needs_the_base_here(patch: pytest.MonkeyPatch) -> None:
    install(patch, Server(frozen=False))
    with pytest.raises(ConfigError, match=r"give --tinker\.mirror"):
        build(config(tinker={"url": URL, "base": BASE, "mirror": False}))


def test_a_service_lost_in_a_run_is_told(patch: pytest.MonkeyPatch) -> None:
    server = install(patch, Server())
    trainer = trainer_of(config(batch_size=4))
    server.failing = ConnectionError("gone")
    with pytest.raises(TrainingError, match=r"did not sample: ConnectionError: gone. --resume continues"):
        trainer.step()
    trainer.parts.close()


def test_a_gradient_that_is_not_to_be_used_is_not_left_at_the_service(patch: pytest.MonkeyPatch) -> None:
    """It adds up what it is sent until the next step: zeros would thin a mean, and what is not a number stays."""
    install(patch, Server("mean over sequences of the mean"))
    trainer = trainer_of(config(batch_size=2, loss={"kl": 0.0, "kl_end": None}))
    trainer.assign_credit(trainer.play(1), 0)
    batch = trainer.pack(trainer.parts.replay.take(0)[0])
    backend: Any = trainer.parts.backend
    settings = trainer.parts.learner.settings(1)
    idle = backend.forward_backward(replace(batch, advantages=np.zeros_like(batch.advantages)), settings, 0)
    assert idle["grad_norm"] == 0.0 and backend.training.client.grads is None
    backend.forward_backward(batch, settings, 0)
    assert backend.training.client.grads is not None
    patch.setattr(backend.training, "gradient", lambda parts, *_: [part.old * np.nan for part in parts])
    with pytest.raises(TrainingError, match=r"not finite, and a gradient there cannot be taken back"):
        backend.forward_backward(batch, settings, 0)
    trainer.parts.close()


def test_weights_that_only_the_service_has_are_not_deleted_there(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An adapter that cannot be fetched is written as its path, such as RUN/best; it is then all there is of it."""
    server = install(patch, Server())
    trainer = trainer_of(config(batch_size=2, tinker={"url": URL, "base": BASE, "mirror": False}))
    backend: Any = trainer.parts.backend

    def lost(path: str) -> bytes:
        raise TrainingError(f"no copy of {path}")

    patch.setattr(backend.service, "archive", lost)
    backend._now = None
    backend.write(backend.snapshot(0), tmp_path / "best", {})
    path = json.loads((tmp_path / "best/adapter_config.json").read_text())["legos"]["tinker"]
    trainer.step()
    trainer.step()
    gc.collect()
    backend._sweep()
    assert server.deleted and path not in server.deleted
    trainer.parts.close()


@pytest.mark.slow
def test_weights_that_are_still_played_are_not_deleted_there(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Playing ahead without a mirror: nothing here has the weights but the requests that sample from them."""
    server = install(patch, Server())
    settings = {"steps": 3, "batch_size": 4, "tinker": {"url": URL, "base": BASE, "mirror": False}}
    train(config(run_dir=tmp_path / "run", asynchronous={"enabled": True}, **settings), quiet=True)
    assert server.deleted and server.sampled_after_deletion == []


@pytest.mark.slow
def test_playing_ahead_versions_are_exact(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Episodes are played while a step is learned from, and every token is of the version that it is said to be."""
    install(patch, Server())
    settings = config(tmp_path / "run", steps=4, asynchronous={"enabled": True}, league={"mode": "fsp"})
    rows: list[Any] = []
    result = train(settings, quiet=True, on_step=rows.append)
    assert result.steps == 4 and any(row["staleness_max"] > 0 for row in rows)
    assert max(row["staleness_max"] for row in rows) <= settings.asynchronous.max_off_policy_steps
    assert all(row.get("mismatch_max", 0) < 1e-4 for row in rows)


def test_a_moving_server_does_not_play_ahead(patch: pytest.MonkeyPatch) -> None:
    install(patch, Server(frozen=False))
    with pytest.raises(ConfigError, match=r"asynchronous\.enabled must be off"):
        build(config(asynchronous={"enabled": True}))


def test_settings_of_the_service_need_the_backend() -> None:
    with pytest.raises(ConfigError, match=r"give --backend tinker"):
        small(tinker={"url": URL})
    with pytest.raises(ConfigError, match=r"leave out server\.urls"):
        config(server={"urls": ["http://h:1"]})


@pytest.mark.parametrize("name", SERVICE_LOSSES)
def test_the_loss_that_is_logged_is_that_of_its_row(name: str) -> None:
    rng = np.random.default_rng(3)
    old, gap, advantages = -rng.random(64), rng.normal(0, 0.5, 64), rng.normal(size=64)
    settings = LossSettings(name=name)
    arrays = (mx.array(values.astype(np.float32)) for values in (old + gap, old, advantages))
    own = settings.token_loss(Samples(*arrays, np.arange(64), np.ones(64)), **settings.options)
    np.testing.assert_allclose(_loss(gap, old + gap, advantages, settings), np.array(own), atol=1e-5)
