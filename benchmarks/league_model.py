"""PSRO with a language model: the exact exploitability of the mixture of a league's snapshots.

    python -m benchmarks.league_model                                  # Kuhn poker, `tiny`, every action valued
    python -m benchmarks.league_model --seeds 0 1 2 --loss.name ppo --batch-size 512    # more settings of `legos train`
    python -m benchmarks.league_model --rivals 2                       # two learners that meet in one league

A league of `legos train` in which the opponents are drawn from the equilibrium of the pool's payoffs (Lanctot et al.
2017, arXiv 1711.00832). Every snapshot is read exactly, as the probabilities of its answers in every information set.
Their mixture draws one snapshot a game, for each side by its own weights. NashConv is shown of the last policy and of
the mixture.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import legos_envs
from legos_train import Trainer
from legos_train.cli.setting_flags import parse
from legos_train.config import from_dict
from legos_train.observe import eval_numbers
from legos_train.rollout.players import actors
from legos_train.run import build
from legos_train.run.league_value import league_value
from legos_train.run.payoff_games import fill_payoffs

SETTINGS: dict[str, Any] = {
    "steps": 240,
    "batch_size": 64,
    "loss": {"name": "expected", "aggregation": "constant", "kl": 0.15, "kl_end": 0.02, "skip_forced": 1e-3},
    "optim": {"lr": 1e-3},
    "league": {"mode": "psro", "snapshot_every": 8, "pool": 25, "latest": 0.0, "payoff_games": 0},
    "average": {"kind": "none"},
    "eval": {"every": 0},
    "checkpoint": {"every": 0},
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="KuhnPoker-v0")
    p.add_argument("--seeds", type=int, nargs="+", default=[0])
    p.add_argument("--every", type=int, default=80, help="steps between measurements")
    p.add_argument(
        "--rivals", type=int, default=1, help="learners that share all seats; each has twice the KL of the next"
    )
    options, rest = p.parse_known_args()
    for seed in options.seeds:
        began = time.process_time()
        config = parse(rest, from_dict({**SETTINGS, **learners(options), "env": options.env, "seed": seed}))
        trainer = Trainer(build(config))
        try:
            for step in range(config.steps):
                trainer.step()
                if (step + 1) % options.every == 0 or step + 1 == config.steps:
                    report(trainer, seed, time.process_time() - began)
        finally:
            trainer.parts.close()


def learners(options: argparse.Namespace) -> dict[str, Any]:
    """The tables of several learners; alike in everything, they would learn the same."""
    seats = legos_envs.make(options.env).possible_agents
    loss = SETTINGS["loss"]
    tables = [
        {"name": f"learner_{n}", "roles": seats, "loss": {k: loss[k] / 2**n for k in ("kl", "kl_end")}}
        for n in range(options.rivals)
    ]
    return {"learner": tables} if len(tables) > 1 else {}


def report(trainer: Trainer, seed: int, seconds: float) -> None:
    """One line: the NashConv of what there is after a step; in mirror play there is no mixture."""
    parts, league = trainer.parts, trainer.parts.league
    if league is not None:
        fill_payoffs(parts, league)
    numbers = {**parts.measurer.measure(actors.POLICY), **league_value(parts)}
    print(
        f"seed {seed}  step {trainer.learner.step:4}  "
        + "".join(
            f"{key.rpartition('/')[0] or 'last'} {n:.4f}  " for key, n in numbers.items() if key.endswith("nash_conv")
        )
        + ("" if league is None else f"mixture {numbers[eval_numbers.MIXTURE]:.4f}  of {len(league.pool)} snapshots  ")
        + f"{seconds:.0f} CPU-s",
        flush=True,
    )


if __name__ == "__main__":
    main()
