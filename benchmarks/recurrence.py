"""Chunkwise recurrences of hybrid models against mlx-lm's own: time, memory and the largest difference.

`python -m benchmarks.recurrence [--length 512] [--heads 8] [--size 128] [--json out.json]` runs, without and with the
gradient of all inputs, side by side in one run:

* the gated delta rule with one gate per head (Qwen3-Next, Qwen3.5, OLMo hybrid) and one per channel (Kimi Linear),
  against mlx-lm's loop over positions;
* Mamba 2 (Granite, Falcon-H1, Nemotron-H) against mlx-lm's chunks of 256.

`--hybrid ROWS` adds loss and gradient of ROWS x `--length` tokens through a random qwen3_5 of 4 million parameters: the
learner's, at most `--max-tokens` at a time (its `max_batch_tokens`), against mlx-lm's as in `benchmarks.learner`, over
mlx-lm's loop. With `--shared N` all rows start with the same N tokens; with `--checkpoint-layers` the learner computes
layers again in the backward pass. `--only-hybrid` leaves the rules out.

Memory is the peak of MLX's allocator above the inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread that waits for work costs CPU time, too

import mlx.core as mx
import numpy as np
from mlx_lm.models import gated_delta, qwen3_5
from mlx_lm.models.gated_delta import gated_delta_ops
from mlx_lm.models.ssm import ssm_attn

from benchmarks.learner import batch_of, measured, mlx_lm_step
from benchmarks.models import SIZES, _config
from inference.loading import prepare_mlx
from inference.recurrence import chunked_gated_delta, chunked_ssd
from legos_train import TrainConfig
from legos_train.loss import LossSettings
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy

Rule = Callable[..., tuple[mx.array, mx.array]]


def delta_inputs(length: int, heads: int, size: int, per_channel: bool) -> list[mx.array]:
    rng = np.random.default_rng(0)
    gate = (1, length, heads, size) if per_channel else (1, length, heads)
    keys = rng.normal(size=(2, 1, length, heads, size))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    values, rates = rng.normal(size=(1, length, heads, size)), rng.uniform(size=(1, length, heads))
    arrays = (*keys, values, np.exp(-rng.exponential(size=gate)), rates, rng.normal(size=(1, heads, size, size)))
    return [mx.array(a.astype(np.float32)) for a in arrays]


def ssd_inputs(length: int, heads: int, size: int) -> list[mx.array]:
    rng = np.random.default_rng(0)
    projection, head = (1, length, 1, size), (heads,)
    shapes = ((1, length, heads, size // 2), head, projection, projection, head, (1, length, heads), head)
    return [mx.array(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def run(rule: Rule, inputs: Sequence[mx.array], gradient: bool) -> tuple[float, float, list[mx.array]]:
    """CPU seconds, MiB, and what was computed."""

    def loss(*arrays: mx.array) -> mx.array:
        return sum((out * out).sum() for out in rule(*arrays))

    mx.eval(*inputs)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    began = time.process_time()
    found = mx.grad(loss, argnums=list(range(len(inputs))))(*inputs) if gradient else rule(*inputs)
    mx.eval(found)
    return time.process_time() - began, (mx.get_peak_memory() - before) / 2**20, list(found)


def compare(
    name: str, own: Rule, other: Rule, inputs: Sequence[mx.array], gradient: bool, repeats: int
) -> dict[str, Any]:
    results: dict[Rule, list[tuple[float, float, list[mx.array]]]] = {own: [], other: []}
    for _ in range(repeats):
        for rule in (own, other):
            results[rule].append(run(rule, inputs, gradient))
    (seconds, memory), (slow, large) = (
        (min(r[0] for r in results[rule]), min(r[1] for r in results[rule])) for rule in (own, other)
    )
    pairs = zip(results[own][0][2], results[other][0][2], strict=True)
    off = max(float((mx.abs(a - b).max() / (1e-30 + mx.abs(b).max())).item()) for a, b in pairs)
    case = f"{name}, {'gradient' if gradient else 'forward'}"
    return {
        "case": case,
        "seconds": seconds,
        "faster": slow / seconds,
        "MiB": memory,
        "memory": memory / large,
        "off": off,
    }


def hybrid(
    rows: int, length: int, shared: int, max_tokens: int, checkpoint: bool
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Loss and gradient of a hybrid: the learner's, and mlx-lm's over its loop."""
    attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "partial_rotary_factor": 0.25}
    linear = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_conv_kernel_dim": 4}
    sizes = {
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "full_attention_interval": 4,
        **attention,
        **linear,
    }
    config = _config(*SIZES["4m"]) | {"model_type": "qwen3_5"} | sizes
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict({"model_type": "qwen3_5", "text_config": config}))
    mx.eval(model.parameters())
    policy = LoRAPolicy(model, seed=0, checkpoint_layers=checkpoint)
    batch, settings = batch_of(rows, length, shared), LossSettings(kl=0.0)
    other = mlx_lm_step(model, policy, batch)
    chunked = gated_delta.gated_delta_ops

    def over_the_loop() -> None:
        with mock.patch.object(gated_delta, "gated_delta_ops", chunked.__wrapped__):
            other()

    return lambda: loss_and_grad(policy, batch, settings, max_tokens=max_tokens), over_the_loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--hybrid", type=int, default=0, help="also run a whole model, on this many rows")
    default = TrainConfig.model_fields["max_batch_tokens"].default
    parser.add_argument("--max-tokens", type=int, default=default, help="of one part of the learner's gradient")
    parser.add_argument("--shared", type=int, default=0, help="tokens that all its rows start with")
    parser.add_argument("--checkpoint-layers", action="store_true", help="`optim.checkpoint_layers` of the learner")
    parser.add_argument("--only-hybrid", action="store_true", help="leave out the rules by themselves")
    parser.add_argument("--json", help="also write the rows to this file")
    arguments = parser.parse_args()
    length, heads, size = arguments.length, arguments.heads, arguments.size
    loop = getattr(gated_delta_ops, "__wrapped__", gated_delta_ops)
    scan = getattr(ssm_attn, "__wrapped__", ssm_attn)
    prepare_mlx()
    cases: list[tuple[str, Rule, Rule, list[mx.array]]] = [
        ("gated delta, gate a head", chunked_gated_delta, loop, delta_inputs(length, heads, size, False)),
        ("gated delta, gate a channel", chunked_gated_delta, loop, delta_inputs(length, heads, size, True)),
        ("Mamba 2", chunked_ssd, scan, ssd_inputs(length, heads, size)),
    ]
    rows = []
    print(f"{length} positions, {heads} heads of {size}")
    print(f"{'case':<40}{'ms':>8}{'faster':>9}{'MiB':>8}{'memory':>8}{'off':>10}")
    for name, own, other, inputs in [] if arguments.only_hybrid else cases:
        for gradient in (False, True):
            row = compare(name, own, other, inputs, gradient, arguments.repeats)
            rows.append(row)
            print(
                f"{row['case']:<40}{row['seconds'] * 1e3:>8.0f}{row['faster']:>8.1f}x{row['MiB']:>8.0f}"
                f"{row['memory']:>8.3f}{row['off']:>10.1e}",
                flush=True,
            )
    if arguments.hybrid:
        step, over_the_loop = hybrid(
            arguments.hybrid, length, arguments.shared, arguments.max_tokens, arguments.checkpoint_layers
        )
        step()
        pairs = [(measured(step), measured(over_the_loop)) for _ in range(arguments.repeats)]
        (seconds, memory), (slow, large) = (map(min, zip(*side, strict=True)) for side in zip(*pairs, strict=True))
        row = {"case": "qwen3_5, a whole model", "seconds": seconds, "faster": slow / seconds}
        rows.append({**row, "MiB": memory, "memory": memory / large})
        print(f"{row['case']:<40}{seconds * 1e3:>8.0f}{slow / seconds:>8.1f}x{memory:>8.0f}{memory / large:>8.3f}")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
