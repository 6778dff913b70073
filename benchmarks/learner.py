"""A LoRA step of the learner against mlx-lm's own, by model size: CPU time and peak memory, side by side in one run.

`python -m benchmarks.learner [--sizes tiny,4m,100m,0.6b] [--rows 4] [--tokens 128] [--json out.json]` takes loss and
gradient of the same rows, random weights in the shape of the size, with

* the learner as it is (it chooses how exponentials are computed, `legos_train/model/policy.py`);
* the same with numpy's exponentials, whatever the size;
* the same with the logits of all sites at once (`--sides learner,at-once,mlx-lm`);
* the same with at most N tokens at a time (`max_batch_tokens`), for each N in `--sides`;
* mlx-lm: its LoRA layers, its model, cross-entropy over whole rows, as its trainer does.

Sides take turns; the smallest of some repeats counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread that waits for work costs CPU time, too

import mlx.core as mx
import numpy as np
from mlx import nn

from benchmarks import models
from inference import clone_structure
from inference.loading import prepare_mlx
from legos_envs import Episode, Trajectory, Turn
from legos_train.loss import LossSettings, site_states
from legos_train.loss.batch import Batch, pack
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy

SIZES: dict[str, tuple[int, int, int, dict[str, int]]] = {
    "tiny": (128, 2, 2048, {}),
    "4m": (*models.SIZES["4m"], {}),
    "100m": (*models.SIZES["100m"], {}),
    "0.6b": (1024, 28, 151936, {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
}
"""Hidden size, layers, vocabulary, and what else differs in the config; the last is Qwen3-0.6B in float32."""


def batch_of(rows: int, tokens: int, shared: int = 0) -> Batch:
    """Rows with `shared` tokens in common at their start. The last quarter of a row is trained, or what is not shared
    if that is less.
    """
    rng = np.random.default_rng(0)
    answer = min(tokens // 4, tokens - shared)
    beginning = rng.integers(3, 2000, shared).tolist()

    def turn() -> Turn:
        ids = beginning + rng.integers(3, 2000, tokens - shared).tolist()
        return Turn((), "", 0.0, None, ids[:-answer], ids[-answer:], [-7.6] * answer)

    episodes = [Episode("benchmark", i, {}, {"a": Trajectory("a", "a", turns=[turn()])}) for i in range(rows)]
    return pack(episodes, [{"a": rng.standard_normal(1)} for _ in episodes])


def mlx_lm_step(model: nn.Module, policy: LoRAPolicy, batch: Batch) -> Callable[[], None]:
    """Loss and gradient as mlx-lm's trainer computes them."""
    from mlx_lm.tuner.utils import linear_to_lora_layers

    own = clone_structure(model)
    own.freeze()
    lora = {"rank": policy.lora.rank, "scale": policy.lora.scale, "dropout": 0.0, "keys": set(policy.keys)}
    linear_to_lora_layers(own, len(own.layers), lora)
    mx.eval(own.parameters())
    tokens = mx.array(batch.tokens)
    trained = mx.arange(tokens.shape[1] - 1) >= int(batch.cols.min())

    def loss(model: nn.Module) -> mx.array:
        losses = nn.losses.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]) * trained
        return losses.sum() / (trained.sum() * len(tokens))

    return lambda: mx.eval(nn.value_and_grad(own, loss)(own))


def measured(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds, and MiB above what was there before."""
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    began = time.process_time()
    work()
    return time.process_time() - began, (mx.get_peak_memory() - before) / 2**20


def compare(size: str, options: argparse.Namespace) -> dict[str, Any]:
    hidden, layers, vocab, more = SIZES[size]
    model = models.random_model(hidden, options.layers or layers, vocab, **more)
    batch, settings = batch_of(options.rows, options.tokens, options.shared), LossSettings(kl=0.0)
    policy = LoRAPolicy(model, seed=0, checkpoint_layers=options.checkpoint_layers)

    def step(max_tokens: int | None = None) -> None:
        loss_and_grad(policy, batch, settings, max_tokens=max_tokens)

    def numpy() -> None:
        with mock.patch.object(policy, "_eager", return_value=True):
            step()

    def at_once() -> None:
        with mock.patch.object(site_states, "NUMBERS", len(batch.rows) * vocab):
            step()

    sides: dict[str, Callable[[], None]] = {
        "learner": step,
        "numpy": numpy,
        "at-once": at_once,
        "mlx-lm": mlx_lm_step(model, policy, batch),
    }
    names = options.sides.split(",")
    sides |= {name: partial(step, int(name)) for name in names if name.isdigit()}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(options.repeats):
        for name in names:
            mx.clear_cache()
            results[name].append(measured(sides[name]))
    best = {name: (min(s for s, _ in found), min(m for _, m in found)) for name, found in results.items()}
    return {"size": size, "rows": options.rows, "tokens": options.tokens, **best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="tiny,4m,100m")
    parser.add_argument("--sides", default="learner,numpy,mlx-lm", help="which, the last being what others divide by")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--shared", type=int, default=0, help="tokens that all rows begin with, of --tokens")
    parser.add_argument("--layers", type=int, default=0, help="so many blocks instead of the size's")
    parser.add_argument("--checkpoint-layers", action="store_true", help="`optim.checkpoint_layers` of the learner")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to this file")
    arguments = parser.parse_args()
    prepare_mlx()
    rows, names = [], arguments.sides.split(",")
    print(f"{'size':<8}" + "".join(f"{name:>18}" for name in names) + f"{'time':>8}{'memory':>8}")
    for size in arguments.sizes.split(","):
        row = compare(size, arguments)
        cells = "".join(f"{f'{s:.2f} s, {m:,.0f} MiB':>18}" for s, m in (row[name] for name in names))
        (own_s, own_m), (other_s, other_m) = row[names[0]], row[names[-1]]
        print(f"{size:<8}{cells}{own_s / other_s:>8.2f}{own_m / other_m:>8.2f}", flush=True)
        rows.append(row)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
