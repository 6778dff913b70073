"""Generating while training: a process against a thread, and asynchronous runs against alternating ones.

`python -m benchmarks.overlap [--json out.json] [--seconds 20] [--steps 12]` measures, with a random Qwen3 of 3.7
million parameters, prompts of about 90 tokens and continuations of 48:

* `beside`: tokens generated per second of wall time while the learner computes gradients without a pause, by a separate
  process and by a thread of the same process; the learner's gradients per second meanwhile, and both alone. Bar: the
  process generates at least 3 times what the thread does;
* `runs`: games per second of wall time of whole runs, alternating and asynchronous, all under the same staleness bound
  of one optimiser step (alternating runs stay at 0), and the observed staleness. No bar.

Wall time is the point here, so it needs two free cores: `cores` reports how many it got, as CPU seconds (including the
generating process) per second. Much less than 2, on a busy machine, makes the ratios worthless.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.continuation import save_noisy_model
from inference.loading import prepare_mlx
from legos_train import TrainConfig, Trainer
from legos_train.config import from_dict
from legos_train.run import build
from legos_train.run.batch_generators import make_batch_generator
from legos_train.run.overlap import overlapped
from legos_train.run.stopping import Stopping

GAMES, TOKENS, BOUND, FASTER = 8, 48, 1, 3.0
Found = dict[str, Any]


def config(model: Path, steps: int, backend: str | None) -> TrainConfig:
    """Small batches of long answers; nothing is measured or kept on the way."""
    return from_dict(
        {
            "env": "benchmarks.continuation:Continuation-v0",
            "model": str(model),
            "steps": steps,
            "batch_size": GAMES,
            "sampling": {"max_tokens": TOKENS},
            "credit": {"name": "rae"},
            "loss": {"kl": 0.0, "kl_end": "none"},
            "average": {"kind": "none"},
            "eval": {"every": 0, "games": 2},
            "asynchronous": {
                "enabled": backend is not None,
                "backend": backend or "auto",
                "max_off_policy_steps": BOUND,
                "queue": BOUND,
            },
        }
    )


@contextmanager
def clocked() -> Iterator[Found]:
    """Wall and CPU seconds, the latter with those of children that end inside."""
    found: Found = {}
    began, cpu = time.perf_counter(), _cpu()
    yield found
    found["seconds"] = time.perf_counter() - began
    found["cpu"] = _cpu() - cpu


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def beside(model: Path, backend: str, seconds: float, *, learn: bool = True) -> Found:
    """Tokens that a generator makes per second, and gradients that the learner takes, both for `seconds`.

    The generator always has batches waiting; its rate is over those that fit into the time one after another, at least
    one. They are counted afterwards, since a learner that holds the interpreter keeps them from being received.
    """
    trainer = Trainer(build(config(model, 10**6, backend)))
    try:
        trainer.assign_credit(trainer.play(1), 0)
        trainer.learn(1.0)
        batch, settings = trainer.batch, trainer.learner.settings(1)
        generator = make_batch_generator(trainer)
        trainer.parts.sync.use(generator, trainer.parts.league)
        arena = trainer.parts.arena
        for number in range(1, 200):
            arena.step = number
            generator.submit(number, arena.jobs(arena.get_batch()))
        while generator.collect(0.05) is None:  # the first batch is not measured
            pass
        gradients, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            if learn:
                trainer.parts.backend.forward_backward(batch, settings, 1)
                gradients += 1
            else:
                time.sleep(0.1)
        tokens, playing = 0, 0.0
        while (played := generator.collect(60.0)) is not None:
            if played.error is not None:
                raise RuntimeError(f"generating failed: {played.error}")
            if tokens and playing + played.seconds > spent:  # it ended, or was still running, after the learner
                break
            tokens, playing = tokens + _tokens(played.episodes), playing + played.seconds
        return {"tokens_per_second": tokens / max(playing, 1e-9), "gradients_per_second": gradients / spent}
    finally:
        trainer.parts.close()


def _tokens(episodes: list[Any]) -> int:
    turns = [t for e in episodes for x in e.trajectories.values() for t in x.turns]
    return sum(len(t.action_tokens or ()) for t in turns)


def gradients_alone(model: Path, seconds: float) -> float:
    """The learner's gradients per second when nothing runs beside it."""
    trainer = Trainer(build(config(model, 10**6, None)))
    try:
        trainer.step()
        began, count, settings = time.perf_counter(), 0, trainer.learner.settings(1)
        while time.perf_counter() - began < seconds:
            trainer.parts.backend.forward_backward(trainer.batch, settings, 1)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        trainer.parts.close()


def run(model: Path, backend: str | None, steps: int) -> Found:
    """Games per second of a run from its third step on, and the staleness of what it trained on."""
    trainer, records, warm = Trainer(build(config(model, steps, backend))), [], 2
    with clocked() as total:
        try:
            with Stopping(quiet=True) as stopping:
                one_by_one = (trainer.step() for _ in range(steps))
                for record in one_by_one if backend is None else overlapped(trainer, 0, stopping):
                    records.append(record)
                    if len(records) == warm:
                        began = time.perf_counter()
            spent = time.perf_counter() - began
        finally:
            trainer.parts.close()
    timed = records[warm:]
    return {
        "games_per_second": GAMES * len(timed) / spent,
        "staleness_mean": float(np.mean([r["staleness_mean"] for r in timed])),
        "staleness_max": max(r["staleness_max"] for r in timed),
        "waited": sum(r["seconds_play"] for r in timed) / spent,
        "cores": total["cpu"] / total["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each side of `beside` is measured")
    parser.add_argument("--steps", type=int, default=12, help="optimiser steps of each of the `runs`")
    chosen = parser.parse_args()
    prepare_mlx()
    print(f"random Qwen3, 3.7 million parameters, {GAMES} games a batch, {TOKENS} tokens; {platform.machine()}")
    found: Found = {"beside": {}, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        save_noisy_model(model, "4m")
        for name in ("process", "thread"):
            found["beside"][name] = beside(model, name, chosen.seconds)
            print(f"{name} beside the learner: {_line(found['beside'][name])}", flush=True)
        found["beside"]["alone"] = beside(model, "process", chosen.seconds, learn=False)
        found["beside"]["alone"]["gradients_per_second"] = gradients_alone(model, chosen.seconds)
        print(f"each alone: {_line(found['beside']['alone'])}")
        ratio = found["ratio"] = (
            found["beside"]["process"]["tokens_per_second"] / found["beside"]["thread"]["tokens_per_second"]
        )
        print(
            f"process generates {ratio:.2f} times what the thread does, bar {FASTER:g}: {_verdict(ratio)}", flush=True
        )
        for name in ("alternating", "process", "thread"):
            found["runs"][name] = run(model, None if name == "alternating" else name, chosen.steps)
            print(f"run, {name}: {_line(found['runs'][name])}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


def _verdict(ratio: float) -> str:
    return "met" if ratio >= FASTER else "missed"


def _line(numbers: Found) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in numbers.items())


if __name__ == "__main__":
    main()
