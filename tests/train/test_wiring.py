"""What a run leaves behind is what was measured, and what it computed with is what its settings say.

Two runs for all tests: `uniform` ends with the average ahead, `ema` (slow; by default test_honest_runs.py has one like
it) with the last weights ahead. Everything here is
computed anew from the weights in `checkpoints/step_N`, or by hand; nothing is asked of the code that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.optimizers import AdamW

import legos_envs
from inference import Engine
from inference.text import Renderer
from legos_envs import exact
from legos_train import Result, Trainer, train
from legos_train.evaluation.exact_values import action_probabilities, policy_metrics
from legos_train.loss.batch import Batch
from legos_train.model.lora import grad_norm
from legos_train.model.mlx_backend import MLXBackend
from legos_train.rollout.players import ModelPlayer
from legos_train.rollout.players.words import read_weights
from legos_train.run import build
from tests.train.helpers import small

STEPS = 5
SHARED: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 16,
    "eval": {"every": 1},
    "checkpoint": {"every": 1, "keep": 9},
    "logs": {"rollouts": 2, "rollouts_every": 1},
    "loss": {"kl": 0.4, "kl_end": 0.025},
}
UNIFORM: dict[str, Any] = {
    "seed": 0,
    "average": {"kind": "uniform", "start": 0.5},
    "optim": {"lr": 1e-3, "lr_end": 0.2, "warmup": 2, "epochs": 2, "minibatches": 2},
}
EMA: dict[str, Any] = {
    "seed": 4,
    "average": {"kind": "ema", "decay": 0.6},
    "optim": {"lr": 6e-4, "lr_end": 1.0},
}


@dataclass
class Run:
    """A finished run, and what its backend was told on the way."""

    path: Path
    result: Result
    rows: list[dict[str, Any]]
    losses: list[tuple[float, Batch]] = field(default_factory=list)
    """Of each gradient: the weight of the KL, and what it was computed on."""
    rates: list[float] = field(default_factory=list)
    """Of each optimiser step: the learning rate that the optimiser itself had."""

    def weights(self, name: str) -> dict[str, np.ndarray]:
        """`step_N`, or one of the published ones."""
        where = self.path / "checkpoints" / name if name.startswith("step_") else self.path / name
        return {key: np.asarray(value) for key, value in read_weights(where)[0].items()}

    def averages(self) -> dict[int, dict[str, np.ndarray]]:
        """The average after every step, worked out from the weights of all steps."""
        every = {n: self.weights(f"step_{n}") for n in range(1, STEPS + 1)}
        out: dict[int, dict[str, np.ndarray]] = {}
        for step in every:
            if self.path.name == "uniform":  # the later half of 5 steps: 3, 4 and 5
                shares = {n: 1.0 for n in range(3, step + 1)} or {step: 1.0}
            else:
                shares = {n: 0.6 ** (step - n) for n in range(1, step + 1)}
            total = sum(shares.values())
            out[step] = {key: sum(s / total * every[n][key] for n, s in shares.items()) for key in every[step]}
        return out


def played(path: Path, settings: dict[str, Any]) -> Run:
    """A run with its backend and optimiser listened to."""
    losses: list[tuple[float, Batch]] = []
    rates: list[float] = []
    gradient, apply = MLXBackend.forward_backward, AdamW.apply_gradients

    def forward_backward(self: MLXBackend, batch: Batch, loss: Any, version: int) -> dict[str, Any]:
        losses.append((loss.kl, batch))
        return gradient(self, batch, loss, version)

    def apply_gradients(self: Any, gradients: Any, parameters: Any) -> Any:
        rates.append(float(np.asarray(self.learning_rate)))
        return apply(self, gradients, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MLXBackend, "forward_backward", forward_backward)
        patch.setattr(AdamW, "apply_gradients", apply_gradients)
        result = train(small(path, **SHARED, **settings), quiet=True)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return Run(path, result, rows, losses, rates)


@pytest.fixture(scope="module")
def uniform(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("wiring") / "uniform", UNIFORM)


@pytest.fixture(scope="module")
def ema(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("wiring") / "ema", EMA)


@pytest.fixture(params=["uniform", pytest.param("ema", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def nash_conv() -> Iterator[Any]:
    """Measures weights on an engine that no run has seen."""
    engine, env = Engine.load("tiny"), legos_envs.make("KuhnPoker-v0").unwrapped
    player = ModelPlayer(engine, Renderer(engine.tokenizer), "one")

    def measure(weights: dict[str, np.ndarray]) -> float:
        engine.publish("one", {key: mx.array(value) for key, value in weights.items()}, scale=8.0, version=1)
        probabilities, _ = action_probabilities(env, [player, player], exact.info_sets(env.game))  # type: ignore[arg-type]
        return policy_metrics(env, probabilities)["nash_conv"]  # type: ignore[arg-type]

    yield measure
    engine.close()


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    assert set(one) == set(other)
    return all(np.allclose(one[key], other[key], rtol=0, atol=1e-6) for key in one)


# --- files -----------------------------------------------------------------------------------------------------------


def test_last_and_average_are_what_they_are_called(run: Run) -> None:
    averages = run.averages()
    assert same(run.weights("last"), run.weights(f"step_{STEPS}"))
    assert same(run.weights("average"), averages[STEPS])
    assert not same(run.weights("average"), run.weights("last"))


def test_the_numbers_of_every_step_are_those_of_its_weights_and_of_its_average(run: Run, nash_conv: Any) -> None:
    averages = run.averages()
    for row in run.rows:
        last, average = nash_conv(run.weights(f"step_{row['step']}")), nash_conv(averages[row["step"]])
        assert row["eval"]["nash_conv"] == pytest.approx(last, abs=2e-5)
        assert row["eval"]["nash_conv_average"] == pytest.approx(average, abs=2e-5)


@pytest.mark.parametrize(
    ("name", "ahead"), [("uniform", "average"), pytest.param("ema", "last", marks=pytest.mark.slow)]
)
def test_the_adapter_is_the_better_of_both_and_says_which(
    request: pytest.FixtureRequest, nash_conv: Any, name: str, ahead: str
) -> None:
    run: Run = request.getfixturevalue(name)
    behind = {"average": "last", "last": "average"}[ahead]
    measured = {which: nash_conv(run.weights(which)) for which in ("last", "average", "adapter")}
    assert measured[ahead] < measured[behind] - 1e-3, "another seed is needed: the other one ended ahead"
    assert measured["adapter"] == measured[ahead] and same(run.weights("adapter"), run.weights(ahead))
    assert run.result.published == ahead
    label = json.loads((run.path / "adapter/adapter_config.json").read_text())["legos"]
    assert label["weights"] == ahead and label["step"] == STEPS
    assert label["why"].index(f"{ahead} {measured[ahead]:.3f}") >= 0
    assert run.result.last["nash_conv"] == pytest.approx(measured["last"], abs=2e-5)
    assert run.result.average["nash_conv"] == pytest.approx(measured["average"], abs=2e-5)
    kept = json.loads((run.path / "result.json").read_text())
    assert kept["published"] == ahead and kept["last"] == run.result.last and kept["best"] == run.result.best


def test_best_is_the_best_that_was_measured(run: Run, nash_conv: Any) -> None:
    found = [(row["eval"]["nash_conv"], row["step"], "last") for row in run.rows]
    found += [(row["eval"]["nash_conv_average"], row["step"], "average") for row in run.rows]
    value, step, _ = min(found)
    assert step < STEPS and value < max(found)[0] - 0.05, "another seed is needed: the best has to be on the way"
    assert run.result.best["nash_conv"] == value and run.result.best["step"] == step
    label = json.loads((run.path / "best/adapter_config.json").read_text())["legos"]
    kind = label["weights"].removeprefix("best (").removesuffix(")")
    assert label["step"] == step and (value, step, kind) in found
    assert same(run.weights("best"), run.averages()[step] if kind == "average" else run.weights(f"step_{step}"))
    assert nash_conv(run.weights("best")) == pytest.approx(value, abs=2e-5)


# --- schedules -------------------------------------------------------------------------------------------------------


def test_the_learning_rate_is_warmed_up_and_decays(uniform: Run) -> None:
    # 1e-3, from 1 to .2 of it in four equal parts: 1, .8, .6, .4, .2; times 1/3, 2/3, 1, 1, 1.
    table = [1e-3 / 3, 1.6e-3 / 3, 6e-4, 4e-4, 2e-4]
    assert [row["lr"] for row in uniform.rows] == pytest.approx(table)
    assert uniform.rates == pytest.approx([rate for rate in table for _ in range(4)])


@pytest.mark.slow
def test_a_learning_rate_without_warmup_and_decay_stays(ema: Run) -> None:
    assert [row["lr"] for row in ema.rows] == [6e-4] * STEPS and ema.rates == pytest.approx([6e-4] * STEPS)
    assert [row["updates"] for row in ema.rows] == [1] * STEPS and len(ema.losses) == STEPS


def test_every_epoch_goes_over_everything_once(uniform: Run) -> None:
    assert [row["updates"] for row in uniform.rows] == [4] * STEPS and len(uniform.losses) == 4 * STEPS
    for start in range(0, len(uniform.losses), 4):
        parts = [set(batch.sequence.tolist()) for _, batch in uniform.losses[start : start + 4]]
        turns = set(range(len(parts[0] | parts[1])))
        assert (
            parts[0] | parts[1] == parts[2] | parts[3] == turns and not parts[0] & parts[1] and not parts[2] & parts[3]
        )
        assert parts[0] not in (parts[2], parts[3]), "another epoch, another order"


def test_the_weight_of_the_kl_goes_down(run: Run) -> None:
    table = [0.4, 0.2, 0.1, 0.05, 0.025]
    assert [row["kl_weight"] for row in run.rows] == pytest.approx(table)
    each = run.rows[0]["updates"]
    assert [kl for kl, _ in run.losses] == pytest.approx([kl for kl in table for _ in range(each)])


def test_settings_reach_the_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"lr": 1e-3, "beta1": 0.5, "beta2": 0.75, "eps": 1e-3, "weight_decay": 0.25, "grad_clip": 1e-4}
    seen: list[tuple[Any, ...]] = []

    def apply_gradients(self: AdamW, gradients: dict[str, mx.array], parameters: Any) -> Any:
        seen.append((list(self.betas), self.eps, self.weight_decay, grad_norm(gradients)))
        return apply(self, gradients, parameters)

    apply = AdamW.apply_gradients
    monkeypatch.setattr(AdamW, "apply_gradients", apply_gradients)
    trainer = Trainer(build(small(batch_size=8, optim=asked)))
    record = trainer.step()
    trainer.parts.close()
    assert seen == [([0.5, 0.75], 1e-3, 0.25, pytest.approx(1e-4, rel=1e-3))]
    assert record["grad_norm"] > 1e-3, "the gradient is clipped, and logged as it was"


# --- publishing ------------------------------------------------------------------------------------------------------


def test_every_step_plays_with_the_weights_of_the_step_before(run: Run) -> None:
    for row in run.rows:
        assert row["staleness_max"] == row["staleness_mean"] == 0.0 and set(row["staleness"]) == {"0"}
        assert row["mismatch_max"] < 1e-4
    seen: dict[int, set[int]] = {}
    for line in (run.path / "rollouts.jsonl").read_text().splitlines():
        logged = json.loads(line)
        for trajectory in logged["episode"]["trajectories"]:
            seen.setdefault(logged["step"], set()).update(turn["policy_version"] for turn in trajectory["turns"])
    assert seen == {step: {step - 1} for step in range(1, STEPS + 1)}
