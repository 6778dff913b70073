"""The cost of playing per turn and of the whole step, with their parts: the default step, 512 games of Kuhn poker on
`tiny`.

    python -m benchmarks.play [--against DIR] [--rounds 15]

prints CPU microseconds a turn of playing and of credit, and of the parts of playing: the engine (submitting, stepping),
the environment (starting an episode, handling an answer); then CPU milliseconds of a whole step (the bar is 200) and of
its parts: play, credit, pack, learn, publish. `--against` also measures another checkout, with
the packages of this environment; the two take turns, each in its own process. Means, since full garbage collections
happen only in some rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from inference import Engine
from legos_envs import Runner
from legos_train import TrainConfig
from legos_train.run import Trainer, build

try:
    from legos_train.run.garbage import rarely_collected
except ImportError:  # a checkout from before
    rarely_collected = nullcontext  # type: ignore[assignment]

PARTS: dict[str, tuple[type, str]] = {
    "engine: submit": (Engine, "submit"),
    "engine: step": (Engine, "step"),
    "env: begin": (Runner, "__init__"),
    "env: answer": (Runner, "take" if hasattr(Runner, "take") else "answer"),
}
STEP = {
    "play": "play",
    "credit": "assign_credit",
    "pack": "pack",
    "learn": "update",
    "publish": "publish",
}
"""The methods of `Trainer` that a step consists of."""
BAR = 200
"""Milliseconds that a default step may take."""
spent: defaultdict[str, float] = defaultdict(float)


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] += time.process_time() - began

    return run


def worker() -> None:
    """Plays once for every line that comes in, and answers with microseconds a turn."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    trainer = Trainer(build(TrainConfig()))
    plain = {name: getattr(kind, method) for name, (kind, method) in PARTS.items()}
    with rarely_collected():
        for _ in range(3):
            trainer.step()
        for line in sys.stdin:
            for name, (kind, method) in PARTS.items():
                setattr(kind, method, timed(name, plain[name]) if line.strip() == "parts" else plain[name])
            for name, method in STEP.items():
                setattr(trainer, method, timed(name, getattr(Trainer, method).__get__(trainer)))
            spent.clear()
            began = time.process_time()
            if line.strip() == "step":
                trainer.step()
                found = {"step": time.process_time() - began, **spent}
                print(json.dumps({name: seconds * 1e3 for name, seconds in found.items()}), file=out, flush=True)
                continue
            episodes = trainer.play(trainer.learner.step + 1)
            played = time.process_time()
            trainer.assign_credit(episodes, trainer.learner.step)
            found = {"play": played - began, "credit": time.process_time() - played, **spent}
            trainer.parts.replay.records.clear()
            turns = sum(episode.turns for episode in episodes)
            print(json.dumps({name: seconds / turns * 1e6 for name, seconds in found.items()}), file=out, flush=True)


class Checkout:
    """A benchmark's worker in a process of its own, on the packages of a checkout.

    Args:
        tree: the checkout.
        script: the file that is run; it must import nothing that an older checkout lacks.
        arguments: of the worker, which answers each line with one of its own.
    """

    def __init__(self, tree: Path, script: str, *arguments: str) -> None:
        if not (tree / "inference" / "__init__.py").exists():  # the installed packages would be measured instead
            raise SystemExit(f"{tree} is no checkout of Legos: it has no package inference; give the folder of one")
        self._tree = tree
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(script).resolve()), *arguments]
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker on {self._tree} ended without an answer; its error is above")
        return answer

    def close(self) -> None:
        """Lets the worker end."""
        self._process.communicate()


class Side:
    """What was measured on a checkout."""

    def __init__(self, tree: Path) -> None:
        self._worker = Checkout(tree, __file__, "--worker")
        self.rounds: list[dict[str, float]] = []
        self.parts: list[dict[str, float]] = []
        self.steps: list[dict[str, float]] = []

    def measure(self) -> None:
        self.rounds.append(self._ask("whole"))
        self.parts.append(self._ask("parts"))
        self.steps.append(self._ask("step"))

    def _ask(self, what: str) -> dict[str, float]:
        return dict(json.loads(self._worker.ask(what)))

    def means(self) -> dict[str, float]:
        every = {name: [one[name] for one in self.rounds] for name in ("play", "credit")}
        every |= {name: [one[name] for one in self.parts] for name in PARTS}
        return {name: statistics.mean(values) for name, values in every.items()}

    def step(self) -> dict[str, float]:
        """Mean milliseconds of a step and of its parts; the rest is its record."""
        means = {name: statistics.mean([one[name] for one in self.steps]) for name in ("step", *STEP)}
        return means | {"rest": means["step"] - sum(means[name] for name in STEP)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="also measure this checkout")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker()
    trees = [Path(__file__).resolve().parents[1], *([options.against.resolve()] if options.against else [])]
    sides = [Side(tree) for tree in trees]
    for number in range(options.rounds):
        for side in sides if number % 2 else sides[::-1]:
            side.measure()
    found = [side.means() for side in sides]
    print(f"{'us a turn, means':<22}" + "".join(f"{tree.name:>22}" for tree in trees))
    for name in found[0]:
        print(f"{name:<22}" + "".join(f"{one[name]:>22.1f}" for one in found))
    print(f"\n{f'ms a step (bar: {BAR})':<22}" + "".join(f"{tree.name:>22}" for tree in trees))
    steps = [side.step() for side in sides]
    for name in steps[0]:
        print(f"{name:<22}" + "".join(f"{one[name]:>22.1f}" for one in steps))
    if len(sides) > 1:
        this, other = (one["play"] + one["credit"] for one in found)
        print(f"play and credit: {this / other:.2f} times the other")


if __name__ == "__main__":
    main()
