"""PSRO with a language model: the exact exploitability of the mixture of a league's snapshots.

    python -m benchmarks.league_model                                  # Kuhn poker, `tiny`, every action valued
    python -m benchmarks.league_model --seeds 0 1 2 --loss.name ppo --batch-size 512    # more settings of `legos train`

A league of `legos train` in which the opponents are drawn from the equilibrium of the pool's payoffs (Lanctot et al.
2017, arXiv 1711.00832). Every snapshot is read exactly, as the probabilities of its answers in every information set.
Their mixture draws one snapshot a game, for each side by its own weights; in sequence form it is a weighted sum.
NashConv is shown of the last policy, of the weight average and of the mixture.
"""

from __future__ import annotations

import argparse
import resource
from typing import Any

import numpy as np

from benchmarks.league import Tabular
from legos_envs.exact.graph import graph_of
from legos_train import Trainer
from legos_train.cli.train import parse
from legos_train.config import from_dict
from legos_train.evaluation.exact_values import action_probabilities
from legos_train.run import build
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
    options, rest = p.parse_known_args()
    for seed in options.seeds:
        config = parse(rest, from_dict({**SETTINGS, "env": options.env, "seed": seed}))
        trainer = Trainer(build(config))
        try:
            for step in range(config.steps):
                trainer.step()
                if (step + 1) % options.every == 0 or step + 1 == config.steps:
                    report(trainer, seed)
        finally:
            trainer.parts.close()


def report(trainer: Trainer, seed: int) -> None:
    """One line: the NashConv of what there is after a step."""
    parts = trainer.parts
    league = parts.league
    assert league is not None
    fill_payoffs(parts, league)
    (task,) = parts.measurer.tasks.values()
    game = Tabular(task.env.game)  # type: ignore[attr-defined]
    last = weights(trainer, game, "policy")
    mixed = []
    for side in (0, 1):
        shares = {name: share for name, share in league.mixture(side).items() if share > 0}
        mixed.append(np.sum([share * weights(trainer, game, name)[side] for name, share in shares.items()], axis=0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"seed {seed}  step {trainer.learner.step:4}  last {2 * game.exploitability(*last):.4f}  "
        f"mixture {2 * game.exploitability(*mixed):.4f}  of {len(league.pool)} snapshots  "
        f"{used.ru_utime + used.ru_stime:.0f} CPU-s",
        flush=True,
    )


def weights(trainer: Trainer, game: Tabular, adapter: str) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of an adapter's policy in sequence form; what it answers illegally is left out."""
    measurer = trainer.parts.measurer
    (task,) = measurer.tasks.values()
    players = [measurer.player(task, agent, adapter) for agent in task.slot.seats]
    infos = graph_of(task.env.game).infosets  # type: ignore[attr-defined]
    table, _ = action_probabilities(task.env, players, infos)  # type: ignore[arg-type]
    found = []
    for tree in game.trees:
        chances = [table[infos[at]].get(move, 0.0) for at in tree.infosets for move in infos[at].legal]
        found.append(tree.weights(tree.match(np.array([1.0, *chances]))))
    return found[0], found[1]


if __name__ == "__main__":
    main()
