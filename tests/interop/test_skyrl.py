"""`--backend tinker` against SkyRL's server on this machine: installed, started, tested and ended by

    uv run --extra tinker python -m tests.interop.skyrl

LEGOS_TINKER_URL names a server that runs already (skyrl_server.py); without it these tests are skipped. RunResult with
skyrl 0.4.0, tinker 0.25.0,
jax 0.12.0.1 and flax 0.12.12 on Python 3.12.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import load
from legos_train import Trainer, train
from legos_train.config import TrainConfig
from legos_train.disk import MetricsFile
from legos_train.loss.batch import Batch
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy
from legos_train.model.tinker.data import items, spread
from legos_train.run import build
from tests.train.helpers import small

URL = os.environ.get("LEGOS_TINKER_URL", "")
BASE = os.environ.get("LEGOS_TINKER_BASE", "inference/models/tiny")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not URL, reason="LEGOS_TINKER_URL names no server"),
    pytest.mark.filterwarnings("default"),
]
OWN = {
    "backend": "tinker",
    "tinker": {"url": URL, "base": BASE, "multiple": 16},
    "average": {"kind": "none"},
    "lora": {"rank": 8},
}
EPSILON, RATE = 1e3, 0.01
"""Of Adam, so far above the gradient that a step is the gradient; and the rate, well above the rounding of weights."""


def shortened(batch: Batch) -> Batch:
    """Every other turn without its last two tokens."""
    place = np.arange(len(batch)) - np.unique(batch.sequence, return_index=True)[1][batch.sequence]
    odd = batch.sequence % 2 == 1
    lengths = np.where(odd, batch.sequence_length - 2, batch.sequence_length).astype(np.int32)
    cut = replace(batch, sequence_length=lengths).select(~odd | (place < lengths))
    return replace(cut, total_tokens=float(len(cut)))


def shared(weights: dict[str, Any]) -> list[list[str]]:
    """Names of weights that are one: SkyRL joins queries, keys and values, gates and ups, each with a single A."""
    groups: dict[bytes, list[str]] = {}
    for name, value in weights.items():
        groups.setdefault(np.array(value).tobytes(), []).append(name)
    return list(groups.values())


def test_gradients_and_samples_are_those_of_mlx() -> None:
    """Each loss, on turns of unequal length with the KL in the advantages; the samples' log-probabilities too."""
    trainer = Trainer(build(small(**OWN, batch_size=32), run_id="0123456789ab"))
    parts = trainer.parts
    backend: Any = parts.backend

    def played(step: int) -> Batch:
        trainer.assign_credit(trainer.play(step), step - 1)
        return trainer.pack(parts.replay.take(step - 1)[0])

    settings = parts.learner.settings(1)
    backend.forward_backward(played(1), settings, 0)
    backend.optim_step(2e-3)  # so that the policy is not the base any more, and the KL pulls
    parts.learner.step = 1
    parts.sync.policy()
    batch = shortened(played(2))
    assert len(set(batch.sequence_length.tolist())) > 1
    policy = LoRAPolicy(load("tiny")[0], parts.config.lora)
    apart: list[float] = []
    for name, aggregation in (("ppo", "sequence"), ("importance_sampling", "token"), ("cispo", "sequence")):
        settings = parts.learner.settings(2).model_copy(update={"name": name, "aggregation": aggregation})
        before = dict(backend.snapshot(0).content)
        data = items(batch, batch.old_logprobs, batch.advantages)
        fresh = spread(backend.training.logprobs(data), data, len(batch))
        apart.append(float(np.abs(fresh - batch.old_logprobs).max()))
        batch = replace(batch, old_logprobs=fresh)
        policy.load(before)
        _, wanted, _ = loss_and_grad(policy, batch, settings)
        backend.training.config = parts.config.model_copy(update={"loss": settings})
        backend.forward_backward(batch, settings, 1)
        backend.training.step(EPSILON * RATE, beta1=0.0, beta2=0.999, eps=EPSILON, weight_decay=0.0)
        backend._now = None
        after = dict(backend.snapshot(0).content)
        # B is multiplied with `own` on its way here
        own = 32 / 8 / parts.config.lora.scale
        moved = {n: (np.array(before[n]) - np.array(after[n])).astype(np.float64) / RATE for n in before}
        pairs = []
        for one in shared(before):
            scale = own**2 if one[0].endswith("_b") else 1
            pairs.append((moved[one[0]] / scale, sum(np.array(wanted[n]) for n in one)))
        a, b = (np.concatenate([pair[i].ravel() for pair in pairs]).astype(np.float64) for i in (0, 1))
        cosine, norm = a @ b / np.linalg.norm(a) / np.linalg.norm(b), np.linalg.norm(a) / np.linalg.norm(b)
        print(f"{name} {aggregation}: cosine {cosine:.9f}, norm {norm:.6f}")
        assert cosine > 0.99999 and norm == pytest.approx(1, abs=0.01)
    print(f"sampler and trainer differ by {apart[0]:.2g} nats")
    assert apart[0] < 1e-5
    parts.close()


def config(run_dir: Path, **changes: Any) -> TrainConfig:
    settings = {
        "batch_size": 128,
        "steps": 60,
        "optim": {"lr": 1.5e-3},
        "eval": {"every": 5},
        "checkpoint": {"every": 5},
    }
    return small(run_dir, **{**OWN, **settings, **changes})


def test_kuhn_is_learned_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    """The trainer is killed after a checkpoint; a new process goes on where that was, and the game is learned."""
    from legos_train.config import to_toml

    file, run = tmp_path / "kuhn.toml", tmp_path / "run"
    file.write_text(to_toml(config(run)))
    command = [sys.executable, "-m", "legos_train", "train", "--config", str(file), "--run-dir", str(run)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None and not (run / "checkpoints/step_5").exists():
            time.sleep(1)
        process.kill()
        process.wait()
    result = train(config(run), resume=True, quiet=True)
    rows = MetricsFile.read(run / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert max(row["mismatch_max"] for row in rows) < 1e-5
    print(result.start, result.last)
    assert result.last["nash_conv"] <= 0.25


def test_a_league_plays_its_snapshots(tmp_path: Path) -> None:
    """SkyRL's JAX backend trains what it has saved, too: snapshots are copies, and stay."""
    league = {"mode": "fsp", "snapshot_every": 1, "latest": 0.5}
    trainer = Trainer(build(config(tmp_path / "run", batch_size=32, league=league), run_id="0123456789ab"))
    remote: Any = trainer.parts.sync.generator.engine  # type: ignore[attr-defined]
    prompt = [list(range(5, 15))]
    before = remote.sequence_logprobs(prompt, "step_0")[0]
    records = [trainer.step(), trainer.step()]
    assert max(record["mismatch_max"] for record in records) < 1e-5
    assert np.abs(before - remote.sequence_logprobs(prompt, "step_0")[0]).max() < 1e-5
    assert np.abs(before - remote.sequence_logprobs(prompt, "policy")[0]).max() > 1e-3
    assert records[-1]["league"]["members"] >= 2
    trainer.parts.close()
