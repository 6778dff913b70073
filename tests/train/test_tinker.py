"""`--backend tinker` on a Tinker API in this process (tinker_stub.py); the real server: tests/train/test_skyrl.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import load
from legos_train import ConfigError, Trainer, TrainingError, train
from legos_train.config import TrainConfig
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy
from legos_train.model.tinker.reduction import REDUCTIONS
from legos_train.run import build
from tests.train.helpers import small
from tests.train.tinker_stub import BASE, URL, Server, install


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
    _, wanted, _ = loss_and_grad(policy, batch, settings)
    backend.forward_backward(batch, settings, parts.learner.step)
    got, scale = at_server.grads, at_server.policy.lora.scale / parts.config.lora.scale
    at_server.grads = None
    # B was multiplied with `scale` on its way here: dL/dB there is `scale` times what it is here
    pairs = [(np.array(got[n]) / (scale if n.endswith("_b") else 1), np.array(wanted[n])) for n in wanted]
    a, b = (np.concatenate([pair[i].ravel() for pair in pairs]).astype(np.float64) for i in (0, 1))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), float(np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("name", "reduction", "aggregation", "memory"),
    [
        ("ppo", "mean over sequences of the mean", "sequence", "state"),
        ("importance_sampling", "sum", "token", "state"),
        ("cispo", "mean over tokens", "constant", "chat"),
        ("ppo", "mean over sequences of the sum", "token", "chat"),
    ],
)
def test_gradients_are_those_of_mlx(
    patch: pytest.MonkeyPatch, name: str, reduction: str, aggregation: str, memory: str
) -> None:
    """Whatever the server divides by, with turns of unequal length and the KL in the advantages."""
    server = install(patch, Server(reduction))
    loss = {"name": name, "aggregation": aggregation, "constant": 3.0, "kl_estimator": "k3"}
    trainer = trainer_of(config(batch_size=8, loss=loss, env="LeducPoker-v0", env_args={"memory": memory}, optim={"lr": 2e-3}))
    trainer.step()  # so that the policy is not the base any more, and the KL pulls
    trainer.assign_credit(trainer.play(2), 1)
    trainer.batch = trainer.pack(trainer.parts.replay.take(1)[0])
    assert trainer.parts.backend.found.reduction == reduction  # type: ignore[attr-defined]
    found, norm = cosine(trainer, trainer.parts.backend.training.client)  # type: ignore[attr-defined]
    assert found > 0.99999 and norm == pytest.approx(1, abs=1e-3)
    trainer.parts.close()
    assert server.calls and sum(server.calls) > 2 * len(server.calls)  # equal prompts are one call


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("clips", "frozen"), [(True, True), (False, False)])
def test_what_a_server_does_is_found_by_trying(
    patch: pytest.MonkeyPatch, reduction: str, clips: bool, frozen: bool
) -> None:
    install(patch, Server(reduction, clips=clips, frozen=frozen))
    parts = build(config())
    found: Any = parts.backend.found  # type: ignore[attr-defined]
    assert (found.reduction, found.clips, found.frozen) == (reduction, clips, frozen)
    parts.close()
