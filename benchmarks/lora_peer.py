"""The same GRPO run in Legos and in mlx-lm-lora: tokens per second and peak memory.

    uv venv /tmp/peer && uv pip install --python /tmp/peer/bin/python "mlx[cpu]" mlx-lm-lora
    python -m benchmarks.lora_peer --peer /tmp/peer/bin/python [--json out.json]

Both load the same random Qwen3 of 3.7 million parameters, and train LoRA of rank 16 on all linear layers with AdamW for
the same prompts (token by token: ours are recorded and passed to the other), groups of 8, completions of 64 tokens at
temperature 1, the same reward, advantages from the group's mean, a clip of 0.2 and a KL to the base model (`--kl 0`:
without). A step includes everything: sampling, rewards, gradient, update. The first step of each is not measured.

Each side runs alone in its own process, ours first; `tokens` are completion tokens trained on, `cpu` is CPU seconds of
all threads, `wall` seconds. The other side runs with and without `mx.compile`, which on a CPU compiles C++, and
(`--quick`: only) under our Python with the matrix library that Legos brings for MLX on Linux, without which MLX's CPU
wheel is several times slower (`inference/forward/fastblas.py`); the best of these counts. Memory: `mlx`, the peak of
MLX's allocator over the run, including the model; `rss`, how far the process grew over its size just before the first
step (Linux only). The other side scores `--prompts` rows at a time; ours as many tokens as `--batch-tokens` allows,
with blocks recomputed in the backward pass (`optim.checkpoint_layers`; `--keep-blocks`: without, faster and larger).
Bar: twice the tokens per CPU second, with neither memory figure higher.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FASTER = 2.0
Found = dict[str, Any]


def noise(said: str) -> float:
    """As `benchmarks.continuation.noise`: this file is also run where Legos is not installed."""
    return (sum(map(ord, said)) % 97) / 97


class Meter:
    """CPU and wall seconds per step after the first, and memory from just before the first."""

    def __init__(self) -> None:
        import mlx.core as mx

        mx.clear_cache()
        self._before = _resident()
        self.marks: list[tuple[float, float, int]] = [(time.process_time(), time.perf_counter(), 0)]

    def mark(self, tokens: int) -> None:
        """A step has ended; it trained on so many tokens."""
        self.marks.append((time.process_time(), time.perf_counter(), tokens))

    def found(self) -> Found:
        import mlx.core as mx

        (cpu, wall, _), (cpu_end, wall_end, _) = self.marks[1], self.marks[-1]
        tokens = sum(mark[2] for mark in self.marks[2:])
        return {
            "tokens": tokens,
            "tokens_per_cpu_second": tokens / (cpu_end - cpu),
            "tokens_per_second": tokens / (wall_end - wall),
            "cpu": cpu_end - cpu,
            "wall": wall_end - wall,
            "first_step_wall": wall - self.marks[0][1],
            "mlx_mib": mx.get_peak_memory() / 2**20,
            "rss_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024) - self._before,
        }


def _resident() -> float:
    """MiB in memory now."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS")) / 1024


def ours(work: Path, given: argparse.Namespace) -> Found:
    """Trains with Legos; writes the prompts that it used to `work/prompts.json`."""
    from legos_train import Trainer
    from legos_train.config import from_dict
    from legos_train.run import build

    config = from_dict(
        {
            "env": "benchmarks.continuation:Continuation-v0",
            "env_args": {"words": given.words},
            "model": str(work / "model"),
            "steps": given.steps + 1,
            "batch_size": given.prompts * given.group,
            "group_size": given.group,
            "threads": given.threads,
            "max_batch_tokens": given.batch_tokens,
            "sampling": {"max_tokens": given.tokens},
            "credit": {"name": "grpo", "std": True},
            "loss": {"name": "ppo", "kl": given.kl, "kl_end": "none", "kl_estimator": "k3"},
            "optim": {"lr": 1e-5, "beta1": 0.9, "grad_clip": 1e9, "checkpoint_layers": not given.keep_blocks},
            "lora": {"rank": 16, "scale": 8.0},
            "average": {"kind": "none"},
            "eval": {"every": 0, "games": 2},
        }
    )
    trainer = Trainer(build(config))
    meter = Meter()
    prompts: dict[tuple[int, ...], str] = {}
    for _ in range(given.steps + 1):
        meter.mark(int(trainer.step()["action_tokens"]))
        for episode in trainer.last.episodes if trainer.last else ():
            turn = episode.trajectories["writer"].turns[0]
            prompts[tuple(turn.prompt_tokens or ())] = str(turn.observation[-1]["content"])
    found = meter.found()
    trainer.parts.close()
    (work / "prompts.json").write_text(json.dumps([[list(tokens), text] for tokens, text in prompts.items()]))
    return found | {"prompt_tokens": sorted({len(tokens) for tokens in prompts})}


def theirs(work: Path, given: argparse.Namespace) -> Found:
    """Trains with mlx-lm-lora; with `given.site`, under our Python and with our matrix library."""
    if given.site:
        from inference.forward import fastblas

        sys.path.append(given.site)
        fastblas.enable(given.threads)
    import mlx.core as mx
    import mlx.optimizers as optim
    from mlx_lm import load  # type: ignore[attr-defined]
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo  # type: ignore[import-not-found]

    if not given.compile:
        mx.disable_compile()
    mx.random.seed(0)
    model, tokenizer = load(str(work / "model"))[:2]
    base = load(str(work / "model"))[0] if given.kl else None
    for one in (model, base):
        if one is not None:
            one.freeze()
    linear_to_lora_layers(model, len(model.layers), {"rank": 16, "scale": 8.0, "dropout": 0.0})
    prompts = json.loads((work / "prompts.json").read_text())
    meter: list[Meter] = []
    counted: list[int] = []

    def reward(prompts: Any, completions: list[str], answer: Any, types: Any = None) -> list[float]:
        counted.append(len(completions))
        return [noise(text) for text in completions]

    class Steps:
        def on_train_loss_report(self, info: dict[str, Any]) -> None:
            meter[0].mark(round(info["train_average_generated_tokens"] * counted[-1]))

        def on_val_loss_report(self, info: dict[str, Any]) -> None:
            raise AssertionError("nothing is validated here")

    arguments = GRPOTrainingArgs(
        batch_size=given.prompts,
        iters=given.steps + 1,
        group_size=given.group,
        beta=given.kl,
        epsilon=0.2,
        max_completion_length=given.tokens,
        temperature=1.0,
        top_p=0.0,
        top_k=0,
        steps_per_report=1,
        steps_per_save=10**9,
        adapter_file=str(work / "peer.safetensors"),
    )
    meter.append(Meter())
    train_grpo(
        model=model,
        ref_model=base,
        tokenizer=tokenizer,
        optimizer=optim.AdamW(learning_rate=1e-5),
        train_dataset=[(tokens, [0], text, "") for tokens, text in prompts],
        reward_funcs=[reward],
        args=arguments,
        training_callback=Steps(),
        end_answer_token="",
    )
    return meter[0].found()


def _side(name: str, python: str, work: Path, given: argparse.Namespace, *more: str) -> Found:
    out = work / f"{name}.json"
    options = [
        f"--{key}={getattr(given, key)}" for key in ("steps", "prompts", "group", "tokens", "words", "kl", "threads")
    ] + [f"--batch-tokens={given.batch_tokens}", *(["--keep-blocks"] if given.keep_blocks else [])]
    subprocess.run(
        [python, __file__, "--side", name, "--work", str(work), "--out", str(out), *options, *more],
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]) if python == sys.executable else "",
            "OPENBLAS_NUM_THREADS": str(given.threads),
            "HF_HUB_OFFLINE": "1",
        },
        stdout=subprocess.DEVNULL,
    )
    found: Found = json.loads(out.read_text())
    return found


def _site(python: str) -> str:
    """Where that Python keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", help="a Python that has mlx-lm-lora")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--steps", type=int, default=3, help="measured steps")
    parser.add_argument("--prompts", type=int, default=4, help="prompts per step")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="tokens per completion")
    parser.add_argument("--words", type=int, default=60, help="words per prompt, about four tokens each")
    parser.add_argument("--batch-tokens", type=int, default=1024, help="our max_batch_tokens")
    parser.add_argument("--keep-blocks", action="store_true", help="run ours without optim.checkpoint_layers")
    parser.add_argument("--kl", type=float, default=0.04)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="run the other side only with our matrix library")
    parser.add_argument("--site", help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        found = (ours if given.side == "ours" else theirs)(given.work, given)
        given.out.write_text(json.dumps(found))
        return 0
    if not given.peer:
        parser.error("--peer: the Python that has mlx-lm-lora is needed; see the top of this file")
    from benchmarks.continuation import save_noisy_model

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "model").mkdir()
        save_noisy_model(work / "model", "4m")
        print(f"{'':<24}{'tok/cpu s':>10}{'tok/s':>8}{'mlx MiB':>9}{'rss MiB':>9}{'tokens':>8}")
        sides: dict[str, Found] = {}
        for name, python, *more in (
            ("ours", sys.executable),
            ("mlx-lm-lora, our BLAS", sys.executable, f"--site={_site(given.peer)}"),
            *(() if given.quick else (("mlx-lm-lora", given.peer), ("mlx-lm-lora, compiled", given.peer, "--compile"))),
        ):
            side = sides[name] = _side("ours" if name == "ours" else "theirs", python, work, given, *more)
            print(
                f"{name:<24}{side['tokens_per_cpu_second']:>10.1f}{side['tokens_per_second']:>8.1f}"
                f"{side['mlx_mib']:>9.0f}{side['rss_mib']:>9.0f}{side['tokens']:>8}",
                flush=True,
            )
    mine = sides.pop("ours")
    best = max(sides, key=lambda name: sides[name]["tokens_per_cpu_second"])
    faster = mine["tokens_per_cpu_second"] / sides[best]["tokens_per_cpu_second"]
    memory = {key: mine[key] / sides[best][key] for key in ("mlx_mib", "rss_mib") if sides[best][key] > 0}
    met = faster >= FASTER and all(share <= 1 for share in memory.values())
    shares = ", ".join(f"{key.removesuffix('_mib')} {share:.2f}" for key, share in memory.items())
    print(f"{faster:.2f} times {best!r}, memory: {shares}; bar {FASTER:g} and 1: {'met' if met else 'missed'}")
    if given.json:
        result = {"ours": mine, "theirs": sides, "best": best, "faster": faster, "memory": memory, "met": met}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
