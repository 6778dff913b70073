"""The recurrences of hybrid models in chunks against mlx-lm's own: time, memory and the largest difference.

`python -m benchmarks.recurrence [--length 512] [--heads 8] [--size 128] [--json out.json]` runs, without and with the
gradient of all inputs, side by side in one run:

* the gated delta rule with a gate for a head (Qwen3-Next, Qwen3.5, OLMo hybrid) and for a channel (Kimi Linear),
  against mlx-lm's loop over positions;
* Mamba 2 (Granite, Falcon-H1, Nemotron-H) against mlx-lm's chunks of 256.

Memory is the peak of MLX's allocator above the inputs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.gated_delta import gated_delta_ops
from mlx_lm.models.ssm import ssm_attn

from inference.loading import prepare_mlx
from inference.recurrence import chunked_gated_delta, chunked_ssd

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
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
    for name, own, other, inputs in cases:
        for gradient in (False, True):
            row = compare(name, own, other, inputs, gradient, arguments.repeats)
            rows.append(row)
            print(
                f"{row['case']:<40}{row['seconds'] * 1e3:>8.0f}{row['faster']:>8.1f}x{row['MiB']:>8.0f}"
                f"{row['memory']:>8.3f}{row['off']:>10.1e}",
                flush=True,
            )
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
