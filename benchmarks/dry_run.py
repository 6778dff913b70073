"""The promises of `legos train --dry-run` against the steps that follow.

`python -m benchmarks.dry_run [--models tiny,small,4m] [--envs KuhnPoker-v0,...] [--json out.json]` makes the promise
and trains a few steps, each in its own process, and prints promised / measured for each line of the promise. Games get
shorter or longer as the policy learns, which no promise can know: "a turn" compares seconds per turn, "turns" their
number. Where invalid moves end games, the dry run also says what a step takes without them: "upper" is that promise by
the longest step, so the steps lie in the promised range where "a step" is below 1 and "upper" above it. `--legal`
measures steps without invalid moves and compares them with the upper end. CPU seconds, one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks import models
from legos_train import TrainConfig
from legos_train.config import from_dict
from legos_train.rollout import LocalGenerator
from legos_train.run import Trainer, build
from legos_train.run.dry_run import forecast, process_peak
from legos_train.run.preflight.legal_play import play_legally

ENVS: dict[str, dict[str, Any]] = {
    "KuhnPoker-v0": {},
    "TicTacToe-v0": {},
    "ConnectFour-v0": {},
    "SimpleNegotiation-v0": {},
    "GSM8K-v0": {"env": [{"id": "GSM8K-v0", "args": {"source": "words"}}], "credit": "grpo"},
    "Debate-v0": {},
}
EPISODES = {"tiny": 512, "small": 256, "4m": 64, "100m": 32}
"""Of a step, by model: as many as this machine plays in some seconds."""


TOKENS = 24
"""Of an action of a random model, which never ends one by itself."""


def config_of(env: str, model: str, options: argparse.Namespace) -> TrainConfig:
    where, more = model, dict[str, Any]()
    if model in models.SIZES:
        folder = options.folder / model
        if not (folder / "config.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            models.save_model(folder, model)
        where, more = str(folder), {"sampling": {"max_tokens": TOKENS}}
    settings = {"env": env, "model": where, "batch_size": options.episodes or EPISODES[model], **ENVS[env], **more}
    return from_dict(settings, "benchmark")


def promised(config: TrainConfig, _: argparse.Namespace) -> dict[str, Any]:
    return asdict(forecast(config, time.process_time))


def measured(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    parts = build(config)
    steps = []
    if options.legal:
        assert isinstance(parts.arena.generator, LocalGenerator)
        play_legally(parts.arena.generator)
    try:
        trainer = Trainer(parts)
        for _ in range(options.steps):
            mx.reset_peak_memory()
            began = time.process_time()
            episodes = trainer.play(trainer.learner.step + 1)
            trainer.assign_credit(episodes, trainer.learner.step)
            played = time.process_time()
            trainer.learn(0.0)
            ended = time.process_time()
            steps.append(
                {
                    "play": played - began,
                    "learn": ended - played,
                    "peak": mx.get_peak_memory(),
                    "process": process_peak(),
                    "turns": sum(episode.turns for episode in episodes),
                }
            )
    finally:
        parts.close()
    return {"steps": steps}


SIDES = {"promised": promised, "measured": measured}


def run(side: str, env: str, model: str, options: argparse.Namespace) -> dict[str, Any]:
    """A side in a fresh process."""
    given = [f"--{name}={getattr(options, name)}" for name in ("steps", "episodes", "folder")]
    given += ["--legal"] if options.legal else []
    command = [sys.executable, "-m", "benchmarks.dry_run", "--run", side, "--envs", env, "--models", model, *given]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{side} of {env} on {model} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compared(promise: dict[str, Any], steps: list[dict[str, Any]], legal: bool) -> dict[str, float]:
    """Promised / measured, of the mean of all steps but the first, which loads what Python and MLX load when used."""
    upper = promise["legal"] or promise["whole"]
    whole, later = upper if legal else promise["whole"], steps[1:] or steps
    seconds, turns = whole["play"] + whole["learn"], whole["turns"]
    spent = {name: statistics.mean(step[name] for step in later) for name in ("play", "learn", "turns")}
    total = spent["play"] + spent["learn"]
    return {
        "play": whole["play"] / spent["play"],
        "learn": whole["learn"] / spent["learn"],
        "a step": seconds / total,
        "upper": (upper["play"] + upper["learn"]) / max(step["play"] + step["learn"] for step in later),
        "turns": turns / spent["turns"],
        "a turn": (seconds / turns) / (total / spent["turns"]),
        "ceiling": promise["ceiling"] / max(step["peak"] for step in steps),
        "peak": whole["peak"] / max(step["peak"] for step in steps),
        "process": whole["process"] / max(step["process"] for step in steps),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="tiny,small,4m")
    parser.add_argument("--envs", default=",".join(ENVS))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=0, help="episodes per step; 0: chosen by model")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "legos-dry-run")
    parser.add_argument("--legal", action="store_true", help="play without invalid moves")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [(env, model) for model in options.models.split(",") for env in options.envs.split(",")]
    if options.run:
        print(json.dumps(SIDES[options.run](config_of(*names[0], options), options)))
        return 0
    rows = []
    for env, model in names:
        config_of(env, model, options)  # makes the model
        promise, steps = (run(side, env, model, options) for side in SIDES)
        ratios = compared(promise, steps["steps"], options.legal)
        if not rows:
            print(f"{'promised / measured':<28}{'s, MiB':>14}" + "".join(f"{name:>9}" for name in ratios))
        whole = promise["whole"]
        size = f"{whole['play'] + whole['learn']:.2f}, {whole['peak'] / 2**20:.0f}"
        print(f"{env:<22}{model:<6}{size:>14}" + "".join(f"{value:>9.2f}" for value in ratios.values()), flush=True)
        rows.append({"env": env, "model": model, "promised": promise, **steps, "ratios": ratios})
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
