"""Does a proposer find the edge of the solvers' ability, and do solvers learn there? `ProposerSolver-v0` on arithmetic.

    python -m benchmarks.proposer_solver --start hard --seeds 0 1 2 --json FILE

First makes a small base model (`benchmarks.arithmetic_base`, kept in `--base`) that writes problems mostly too hard
(`--start hard`) or too easy (`easy`) for itself. Then trains, and reports

* the pass rate: the share of correct solvers over the problems played. Before the first step it must lie outside
  0.35-0.65 (192 problems), then reach 0.5 +- 0.1 and stay there: the running mean of 10 steps is inside at every step
  of the last third;
* solvers' accuracy before and after on the problems that training never plays (the fifth in `split="test"`), with 64
  answers each: the 95 % interval of the gain, by bootstrap over problems, must exclude 0. The base has read all 156.

With `--learners one two` each seed is trained twice, with one adapter for both roles and with one each, and the
advantage of two over one is reported, with an interval over problems for each seed and over seeds for all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.arithmetic_base import PROBLEMS, STARTS, make_base
from legos_envs import Episode
from legos_envs.tasks.problems.proposed_problems import problem_key
from legos_envs.tasks.splits import part_of
from legos_train import EpisodeRequest, TrainConfig, Trainer
from legos_train.config import from_dict
from legos_train.observe.dashboard_text import sparkline
from legos_train.run import build

WINDOW = 10
SETTINGS: dict[str, Any] = {
    "env": "ProposerSolver-v0",
    "env_args": {"num_solvers": 8, "split": "train"},
    "steps": 120,
    "batch_size": 48,
    "group_size": 1,
    "sampling": {"max_tokens": 24},
    "lora": {"rank": 8},
    "credit": {"name": "hierarchical_grpo", "root_peers": "batch"},
    "optim": {"lr": 1e-3, "lr_end": 1.0},
    "loss": {"kl": 0.3, "kl_end": 0.3},
    "average": {"kind": "none"},
}

LEARNERS: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"learner": [{"name": role, "roles": [role]} for role in ("proposer", "solver")]},
}
"""The settings by who learns: one policy plays both roles, or each role has one of its own."""


class Watcher:
    """A task sampler that changes nothing: it reports what was proposed, and how it went."""

    def prepare(self, request: EpisodeRequest, rng: np.random.Generator, step: int) -> EpisodeRequest:
        return request

    def learn(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        proposers = [t for e in episodes for t in e.trajectories.values() if t.role == "proposer"]
        rates = [t.info["solve_rate"] for t in proposers if t.info.get("solve_rate") is not None]
        return {
            "pass_rate": float(np.mean(rates)) if rates else float("nan"),
            "played": len(rates) / len(proposers),
            "problems": float(len({t.info.get("problem") for t in proposers})),
            "proposer": float(np.mean([t.total for t in proposers])),
        }

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Takes what `state_dict` gave."""


HELD_OUT = tuple(p for p in PROBLEMS if part_of(problem_key(p.text, "arithmetic")) == "test")


def accuracy(trainer: Trainer) -> np.ndarray:
    """How often solvers are right on each of `HELD_OUT`, by 8 episodes of 8 solvers."""
    requests = [
        EpisodeRequest(
            SETTINGS["env"],
            kwargs={"split": "test"},
            seed=1000 * i + k,
            options={"problem": problem.text},
            train_roles=(),
        )
        for i, problem in enumerate(HELD_OUT)
        for k in range(8)
    ]
    episodes = asyncio.run(trainer.parts.arena.generate_rollouts(requests))
    trainer.parts.drop_caches()
    return np.array([episode.info["solve_rate"] for episode in episodes]).reshape(-1, 8).mean(axis=1)


def pass_rate(trainer: Trainer, count: int = 192) -> float:
    """The mean solve rate of problems that the current proposer writes, in evaluation episodes."""
    requests = [EpisodeRequest("ProposerSolver-v0", seed=10**6 + i, train_roles=()) for i in range(count)]
    episodes = asyncio.run(trainer.parts.arena.generate_rollouts(requests))
    trainer.parts.drop_caches()
    rates = [e.trajectories["proposer_0"].info.get("solve_rate") for e in episodes]
    return float(np.mean([rate for rate in rates if rate is not None]))


def interval(before: np.ndarray, after: np.ndarray, draws: int = 10_000) -> tuple[float, float]:
    """95 % interval of the mean gain, by bootstrap over problems."""
    picks = np.random.default_rng(0).integers(len(before), size=(draws, len(before)))
    low, high = np.quantile((after - before)[picks].mean(1), (0.025, 0.975))
    return float(low), float(high)


def run(config: TrainConfig) -> dict[str, Any]:
    """One training run, step by step."""
    trainer = Trainer(build(config))
    trainer.parts.arena.add_sampler(Watcher())
    try:
        before, start = accuracy(trainer), pass_rate(trainer)
        began = time.process_time()
        records = []
        for _ in range(config.steps):
            record = trainer.step()
            records.append({**record["curriculum"], "kl": record["kl"], "entropy": record["entropy"]})
            if len(records) % WINDOW == 0:
                shown = {k: np.nanmean([r[k] for r in records[-WINDOW:]]) for k in records[-1]}
                print(f"step {len(records)}  " + "  ".join(f"{k} {v:.3f}" for k, v in shown.items()), flush=True)
        seconds = time.process_time() - began
        after, end = accuracy(trainer), pass_rate(trainer)
    finally:
        trainer.parts.close()
    curve = np.array([r["pass_rate"] for r in records])
    means = [float(np.nanmean(curve[i : i + WINDOW])) for i in range(len(curve) - WINDOW + 1)]
    last = means[-(config.steps // 3) :]
    return {
        "pass_rate": [round(float(rate), 4) for rate in curve],
        "start": start,
        "end": end,
        "means": means,
        "last_third": [min(last), max(last)],
        "accuracy": [float(before.mean()), float(after.mean())],
        "by_problem": after.tolist(),
        "gain_interval": interval(before, after),
        "seconds": seconds,
        "records": records,
    }


def passes(found: dict[str, Any]) -> dict[str, bool]:
    """The parts of the bar."""
    low, high = found["last_third"]
    return {
        "starts outside .35-.65": not 0.35 <= found["start"] <= 0.65,
        "comes to .5 +- .1 and stays": low >= 0.4 and high <= 0.6,
        "accuracy rises": found["gain_interval"][0] > 0,
    }


def ahead(results: Sequence[dict[str, Any]]) -> str:
    """What two learners are ahead of one in accuracy, by seed and over seeds."""
    ends = {(one["learners"], one["seed"]): np.array(one["by_problem"]) for one in results}
    lines, gains = [], []
    for seed in sorted({one["seed"] for one in results}):
        pair = ends["one", seed], ends["two", seed]
        low, high = interval(*pair)
        gains.append(float((pair[1] - pair[0]).mean()))
        lines.append(f"seed {seed}: two learners are ahead by {gains[-1]:+.3f} ({low:+.3f} to {high:+.3f})")
    if len(gains) > 1:
        half = float(stats.sem(gains) * stats.t.ppf(0.975, len(gains) - 1))
        mean = float(np.mean(gains))
        lines.append(f"{len(gains)} seeds: {mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", choices=list(STARTS), default="hard")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--learners", choices=list(LEARNERS), nargs="+", default=["one"])
    parser.add_argument("--base", type=Path, default=Path("runs/arithmetic"), help="directory for base models")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    base = options.base / options.start
    if not (base / "config.json").exists():
        make_base(base, options.start)
    results = []
    for seed in options.seeds:
        for learners in options.learners:
            own = {"model": str(base), "seed": seed, **LEARNERS[learners], **options.set}
            found = run(from_dict({**SETTINGS, **own}))
            results.append({"seed": seed, "begin": options.start, "learners": learners, **found})
            (before, after), (low, high) = found["accuracy"], found["gain_interval"]
            print(
                f"{options.start}, seed {seed}, {learners}: pass rate {found['start']:.3f} "
                f"{sparkline(found['means'][::3])} {found['end']:.3f}, in the last third {found['last_third'][0]:.3f} "
                f"to {found['last_third'][1]:.3f}; accuracy {before:.3f} -> {after:.3f} (gain {low:+.3f} to "
                f"{high:+.3f}); {found['seconds']:.0f} CPU s"
            )
            for part, ok in passes(found).items():
                print(f"  {'yes' if ok else 'NO '}  {part}", flush=True)
    if set(options.learners) == set(LEARNERS):
        print(ahead(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
