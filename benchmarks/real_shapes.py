"""Random weights in the shapes of real models, end to end on this machine, next to mlx-lm where it has a counterpart.

`python -m benchmarks.real_shapes [--shapes 0.6b,0.6b:4,qwen3.5-0.8b] [--rows 8] [--tokens 512] [--json out.json]` makes
each model once (below --folder) and runs every part in its own process: load, a prompt and a short completion, a few
games, a published adapter, three training steps, a checkpoint. `:4` is the shape in four bits. One thread.

`python -m benchmarks.real_shapes --four-bits [--layers 6]` compares four-bit weights (unpacked at load, unpacked on
use, and packed) with the same model in full precision; sides take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from benchmarks import models
from benchmarks.learner import batch_of, mlx_lm_step
from benchmarks.measuring import alternate
from inference import Engine, Request, SamplingParams, load, unpacking
from inference.forward import fastblas
from inference.loading import prepare_mlx
from legos_train.config import sizes
from legos_train.config.sections import LoRASettings
from legos_train.loss import LossSettings
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy
from legos_train.run.preflight.memory import outline

Numbers = dict[str, float]
RANK = 8


def make(folder: Path, shape: str, layers: int | None = None) -> Path:
    """A directory with random weights in half precision, or in four bits, and a tokenizer as large as the shape's."""
    name, _, bits = shape.partition(":")
    where = folder / f"{name}-{bits or 16}-{layers or 'all'}"
    if (where / "config.json").is_file():
        return where
    where.mkdir(parents=True, exist_ok=True)
    config = dict(sizes.size(name).shape)
    text = config.get("text_config", config)
    if layers is not None:
        text["num_hidden_layers"] = layers
    mx.random.seed(0)
    model = outline(sizes.size(name)._replace(shape=config, bits=16))
    model.set_dtype(mx.bfloat16)
    if bits:
        nn.quantize(model, 64, int(bits))
        config["quantization"] = {"group_size": 64, "bits": int(bits)}
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for array in weights.values():
        mx.eval(array)  # one at a time: the float32 numbers that they are drawn as go again
    mx.save_safetensors(str(where / "model.safetensors"), weights)
    models.save_tokenizer(where, text["vocab_size"])
    (where / "config.json").write_text(json.dumps(config | {"eos_token_id": 2}))
    return where


# Parts: each in a process of its own


def spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = spent()
    result = work()
    return spent() - began, result


def load_mlx_lm(folder: Path, _: argparse.Namespace) -> Numbers:
    import mlx_lm

    return {"load_s": timed(lambda: mlx_lm.load(str(folder)))[0]}


def load_ours(folder: Path, _: argparse.Namespace) -> Numbers:
    return {"load_s": timed(lambda: Engine.load(folder, threads=None))[0]}


def serve_ours(folder: Path, options: argparse.Namespace) -> Numbers:
    model, tokenizer, _ = load(folder)
    engine = Engine(model, tokenizer, prefix_cache_bytes=0)
    fastblas.set_threads(1)
    prompt = np.random.default_rng(0).integers(3, 2000, options.tokens).tolist()
    prefill, _ = timed(lambda: engine.next_logits([prompt], None))
    asked = Request(prompt[:16], SamplingParams(max_tokens=16, seed=0, stop_ids=frozenset()))
    decode, _ = timed(lambda: engine.generate([asked]))
    forward = engine._runner.forward
    weights = models.random_adapter(model, 1, RANK, size=0.01)
    engine.publish("warm", weights, scale=1.0, version=1)
    publish, _ = timed(lambda: engine.publish("mine", weights, scale=2.0, version=1))
    return {
        "prefill_tokens_per_s": len(prompt) / prefill,
        "decode_tokens_per_s": 16 / decode,
        "kv_bytes_per_token": forward.bytes_per_entry,
        "kv_bytes_per_row": forward.bytes_per_row,
        "publish_s": publish,
    }


def serve_mlx_lm(folder: Path, options: argparse.Namespace) -> Numbers:
    """mlx-lm in float32, its fastest on a CPU with a fast BLAS."""
    import mlx_lm
    from mlx_lm.generate import generate_step
    from mlx_lm.models.cache import make_prompt_cache

    prepare_mlx()
    fastblas.set_threads(1)
    model = mlx_lm.load(str(folder))[0]
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    prompt = mx.random.randint(3, 2000, (options.tokens,))
    cache = make_prompt_cache(model)
    prefill, _ = timed(lambda: mx.eval(model(prompt[None], cache=cache)[0, -1]))
    decode, _ = timed(lambda: list(generate_step(prompt[:16], model, max_tokens=16)))
    return {
        "prefill_tokens_per_s": options.tokens / prefill,
        "decode_tokens_per_s": 16 / decode,
    }


def play(folder: Path, options: argparse.Namespace) -> Numbers:
    from legos_train.cli.main import main

    words = ["eval", "KuhnPoker-v0", "-m", str(folder), "-n", str(options.games), "--max-tokens", "8"]
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        seconds, code = timed(lambda: main([*words, "--out", out]))
    assert not code, f"legos {' '.join(words)} ended with {code}"
    return {"eval_s": seconds}


def train_ours(folder: Path, options: argparse.Namespace) -> Numbers:
    from mlx.optimizers import AdamW

    model, _, _ = load(folder)
    fastblas.set_threads(1)
    policy, optimizer, batch = LoRAPolicy(model, LoRASettings(rank=RANK)), AdamW(1e-4), batch_of(*size(options))
    before, steps = mx.get_active_memory(), []

    def step() -> None:
        _, gradient, _ = loss_and_grad(policy, batch, LossSettings(kl=0.0), max_tokens=options.part)
        policy.load(optimizer.apply_gradients(gradient, policy.trainable()))

    mx.reset_peak_memory()
    for _ in range(options.steps):
        steps.append(timed(step)[0])
    with tempfile.TemporaryDirectory() as out:
        policy.save(out)
        kept = sum(file.stat().st_size for file in Path(out).iterdir())
    return {
        "first_step_s": steps[0],
        "step_s": min(steps[1:], default=steps[0]),
        "step_bytes": mx.get_peak_memory() - before,
        "checkpoint_bytes": kept,
    }


def train_mlx_lm(folder: Path, options: argparse.Namespace) -> Numbers:
    """One step of mlx-lm's trainer; in parts of as many rows, so that both sides hold as much at a time."""
    model, _, _ = load(folder)
    fastblas.set_threads(1)
    rows, tokens = size(options)
    policy = LoRAPolicy(model, LoRASettings(rank=RANK))
    at_a_time = max(1, min(rows, options.part // tokens))
    step = mlx_lm_step(model, policy, batch_of(at_a_time, tokens))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    seconds = sum(timed(step)[0] for _ in range(rows // at_a_time))
    return {"step_s": seconds, "step_bytes": mx.get_peak_memory() - before}


def size(options: argparse.Namespace) -> tuple[int, int]:
    return options.rows, options.tokens


PARTS: dict[str, tuple[str, Callable[[Path, argparse.Namespace], Numbers]]] = {
    "mlx-lm/load": ("load", load_mlx_lm),
    "legos/load": ("load", load_ours),
    "mlx-lm/serve": ("serve", serve_mlx_lm),
    "legos/serve": ("serve", serve_ours),
    "legos/eval": ("eval", play),
    "mlx-lm/train": ("train", train_mlx_lm),
    "legos/train": ("train", train_ours),
}


def run_part(part: str, folder: Path, options: argparse.Namespace) -> Numbers:
    """A part in a fresh process, with the most memory that it had."""
    given = [f"--{name}={getattr(options, name)}" for name in ("rows", "tokens", "part", "steps", "games")]
    command = [sys.executable, "-m", "benchmarks.real_shapes", "--run", part, "--folder", str(folder), *given]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    if done.returncode:
        print(f"{part} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def child(part: str, options: argparse.Namespace) -> int:
    began = time.monotonic()
    numbers = PARTS[part][1](options.folder, options)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps(numbers | {"ram_bytes": peak * 1024, "wall_s": time.monotonic() - began}))
    return 0


def shapes(options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for shape in options.shapes.split(","):
        folder = make(options.folder, shape)
        row: dict[str, Any] = {"shape": shape, "rows": options.rows, "tokens": options.tokens, "part": options.part}
        print(f"{shape}: {(folder / 'model.safetensors').stat().st_size / 1e9:.2f} GB", flush=True)
        for part, (kind, _) in PARTS.items():
            if kind in options.parts.split(","):
                row[part] = run_part(part, folder, options)
                said = ", ".join(f"{name} {value:,.4g}" for name, value in row[part].items())
                print(f"  {part:<14}{said}", flush=True)
        found.append(row)
    return found


# Four bits


def four_bits(options: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU seconds of prefill, decode and a gradient for each way to hold the weights, and ratios to full precision."""
    prepare_mlx()
    fastblas.set_threads(1)
    folder = make(options.folder, "0.6b:4", options.layers)
    loaded = {"full": load(make(options.folder, "0.6b", options.layers))[0], "on": load(folder, dequantize="on")[0]}
    with mock.patch.object(unpacking, "free_memory", return_value=0):
        loaded["when used"] = load(folder)[0]
    loaded["off"] = load(folder, dequantize="off")[0]
    engines = {name: Engine(model, None, prefix_cache_bytes=0) for name, model in loaded.items()}
    policies = {name: LoRAPolicy(model, LoRASettings(rank=RANK)) for name, model in loaded.items() if name != "off"}
    prompts = np.random.default_rng(0).integers(3, 2000, (8, options.tokens)).tolist()
    batch = batch_of(2, options.tokens // 2)

    def decode(engine: Engine, rows: int) -> None:
        sampling = SamplingParams(max_tokens=9, seed=0, stop_ids=frozenset())
        engine.generate([Request(prompt[:2], sampling) for prompt in prompts[:rows]])

    cases: dict[str, dict[str, Callable[[], Any]]] = {
        f"prefill of {options.tokens}": {n: lambda e=e: e.next_logits(prompts[:1], None) for n, e in engines.items()},
        "decode, 1 row": {n: lambda e=e: decode(e, 1) for n, e in engines.items()},
        "decode, 8 rows": {n: lambda e=e: decode(e, 8) for n, e in engines.items() if n != "off"},
        f"gradient, 2 x {options.tokens // 2}": {
            n: lambda p=p: loss_and_grad(p, batch, LossSettings(kl=0.0)) for n, p in policies.items()
        },
    }
    found = []
    others = "".join(f"{name:>11}" for name in loaded if name != "full")
    print(f"{options.layers} layers{'':<12}{'full, s':>9}{others}")
    for case, sides in cases.items():
        best = alternate(sides, options.repeats)
        ratios = {name: best[name] / best["full"] for name in best if name != "full"}
        print(f"{case:<20}{best['full']:>9.2f}" + "".join(f"{ratio:>10.2f}x" for ratio in ratios.values()), flush=True)
        found.append({"case": case, "seconds": best, "ratios": ratios})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="0.6b,0.6b:4,qwen3.5-0.8b")
    parser.add_argument("--parts", default="load,serve,eval,train")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "legos-real-shapes")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--part", type=int, default=512, help="tokens per backward pass")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--games", type=int, default=4)
    parser.add_argument("--four-bits", action="store_true")
    parser.add_argument("--layers", type=int, default=6, help="layers of the model for --four-bits")
    parser.add_argument("--repeats", type=int, default=2, help="rounds for --four-bits")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return child(options.run, options)
    found = four_bits(options) if options.four_bits else shapes(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
