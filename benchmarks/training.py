"""The optimisations that make a training step cheap on the CPU, side by side in one run.

`python -m benchmarks.training [--json out.json]` builds a random Qwen3 and rows like those of a board game (a shared
rule text, then a position, then a short answer), and prints one table:

* loss and gradient by three ways to reach the logits (`legos_train/model/site_logits.py`): sites, prefix, plain;
* the same by sites with the exponentials of `inference/forward/exponentials.py` instead of numpy's in fastmath.py;
* prefill and four tokens of the same prompts in the engine: its own forward pass against the model's call.

Sides take turns; the smallest CPU time over the repeats counts. `off` is the largest difference of a logit from the
model's own.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.engine import alternate, random_model
from inference import Engine, Request, SamplingParams
from inference.forward import fastmath
from inference.loading import prepare_mlx
from legos_envs import Episode, Trajectory, Turn
from legos_train import TrainConfig
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch, pack
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy

VOCAB = 2048
RULES, POSITION, ANSWER = 66, 18, 4


def positions(count: int) -> list[list[int]]:
    """Distinct prompts that begin alike."""
    rng = np.random.default_rng(0)
    rules = rng.integers(3, VOCAB, RULES).tolist()
    return [rules + rng.integers(3, VOCAB, POSITION).tolist() for _ in range(count)]


def batch_of(prompts: list[list[int]]) -> Batch:
    """One turn of ANSWER tokens per prompt, with random advantages."""
    rng = np.random.default_rng(1)
    episodes = [
        Episode("benchmark", i, {}, {"a": Trajectory("a", "a", turns=[_turn(prompt, rng)])})
        for i, prompt in enumerate(prompts)
    ]
    return pack(episodes, [{"a": rng.standard_normal(1)} for _ in prompts])


def _turn(prompt: list[int], rng: np.random.Generator) -> Turn:
    return Turn((), "", 0.0, None, prompt, rng.integers(3, VOCAB, ANSWER).tolist(), [-7.6] * ANSWER)


def learning(model: Any, prompts: list[list[int]], repeats: int) -> list[dict[str, Any]]:
    """Loss and gradient of one batch, exact KL included; the reference is computed once, as in training."""
    policy, batch, settings = LoRAPolicy(model, seed=0), batch_of(prompts), LossSettings(kl=0.1, kl_estimator="exact")
    policy.reference(batch)

    def run(path: str) -> dict[str, float]:
        policy.logits.path, policy.logits.trims = path, path == "prefix"
        return loss_and_grad(policy, batch, settings, max_tokens=TrainConfig().max_batch_tokens)[2]

    def in_the_graph() -> dict[str, float]:
        with fastmath.lazily():
            return run("sites")

    sides: dict[str, Callable[[], dict[str, float]]] = {
        "sites": lambda: run("sites"),
        "prefix": lambda: run("prefix"),
        "plain": lambda: run("plain"),
        "sites, in the graph": in_the_graph,
    }

    def logits(path: str) -> np.ndarray:
        policy.logits.path, policy.logits.trims = path, path == "prefix"
        return np.array(policy.forward(batch))

    own = logits("plain")
    off = {path: float(np.abs(logits(path) - own).max()) for path in ("sites", "prefix")}
    best = alternate(sides, repeats)
    return [
        {
            "case": f"loss and gradient, {len(prompts)} rows: {name}",
            "seconds": best[name],
            "ratio": best[name] / best["sites"],
            "off": off.get(name),
        }
        for name in sides
    ]


def playing(model: Any, prompts: list[list[int]], repeats: int) -> list[dict[str, Any]]:
    """The engine on distinct prompts: one token each is the prefill, ANSWER tokens the whole turn."""
    engines = {"own forward": Engine(model, None, max_rows=512), "model's call": Engine(model, None, max_rows=512)}
    engines["model's call"]._runner.own_forward = False
    logits = [engine.next_logits(prompts, None) for engine in engines.values()]
    off = {"own forward": float(np.abs(logits[0] - logits[1]).max())}
    rows = []
    for what, tokens in (("prefill", 1), (f"{ANSWER} tokens", ANSWER)):
        work = [
            Request(p, SamplingParams(max_tokens=tokens, temperature=1.0, seed=i, stop_ids=frozenset()))
            for i, p in enumerate(prompts)
        ]

        def run(name: str, work: list[Request]) -> list[Any]:
            engines[name].drop_caches()
            return engines[name].generate(work)

        best = alternate({name: partial(run, name, work) for name in engines}, repeats)
        rows += [
            {
                "case": f"{what}, {len(prompts)} prompts: {name}",
                "seconds": best[name],
                "ratio": best[name] / best["own forward"],
                "off": off.get(name),
            }
            for name in engines
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--prompts", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    prepare_mlx()
    model = random_model(128, 2, VOCAB)
    prompts = positions(arguments.prompts)
    rows = learning(model, prompts, arguments.repeats) + playing(model, prompts, arguments.repeats)
    print(f"random Qwen3, 2 layers of 128, float32, {platform.machine()}; CPU time, best of {arguments.repeats}")
    print(f"{'case':<56}{'ms':>8}{'ratio':>8}{'off':>10}")
    for row in rows:
        off = "" if row["off"] is None else format(row["off"], ".1e")
        print(f"{row['case']:<56}{row['seconds'] * 1e3:>8.0f}{row['ratio']:>7.2f}x{off:>10}")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
