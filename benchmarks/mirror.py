"""How close does mirror descent get without a model? The yardstick for `--loss.name mirror`, in numpy, no sampling.

    python -m benchmarks.mirror                                       # Leduc poker, the schedule of leduc_expected
    python -m benchmarks.mirror LeducPoker-v0 --step 0.5 1 2 --steps 140 --kl 0.3 0.06
    python -m benchmarks.mirror KuhnPoker-v0 --kl 0.2 0.2 --magnet-every 50 --noise 0.1
    python -m benchmarks.mirror LiarsDice-v0 --arg one_round=True --arg dice=1 --arg faces=3 --arg wild=True

In place of a language model, one number for each action of each information set, valued on the game's tree as in a run.
Each step has a closed form (magnetic mirror descent, arXiv 2206.05825, equation 3). If a run with the same schedule
falls short of this, the model and its optimiser are the cause; if this falls short, the schedule is. `--noise` adds
normal noise to the logits, like a model with an inexact fit.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import legos_envs
from legos_envs import exact
from legos_train.config import parse_assignments
from legos_train.run.all_actions.decisions import spreads
from legos_train.run.all_actions.tabular import mirror_step, softmax, values_of


def descend(game: Any, step: float, kl: tuple[float, float], steps: int, magnet: int, noise: float) -> list[float]:
    """NashConv after each tenth of the steps. kl: the weight at the first and at the last step."""
    graph, random = exact.graph_of(game), np.random.default_rng(0)
    scales = spreads(graph)
    policy = [np.full(len(info.legal), 1 / len(info.legal)) for info in graph.infosets]
    reference, found = policy, []
    for number in range(1, steps + 1):
        weight = step * kl[0] * (kl[1] / kl[0]) ** ((number - 1) / max(steps - 1, 1))
        policy = mirror_step(policy, values_of(graph, policy, scales), reference, step, weight)
        if noise:
            policy = [softmax(np.log(p) + noise * random.standard_normal(len(p))) for p in policy]
        if magnet and number % magnet == 0:
            reference = policy
        if number % max(steps // 10, 1) == 0:
            table = {i: dict(zip(i.legal, (p / p.sum()).tolist())) for i, p in zip(graph.infosets, policy)}
            found.append(exact.nash_conv(game, table.__getitem__))
    return found


def main() -> None:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", nargs="?", default="LeducPoker-v0")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="environment argument")
    parser.add_argument("--step", type=float, nargs="+", default=[0.5])
    parser.add_argument("--kl", type=float, nargs=2, default=[0.3, 0.06])
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--magnet-every", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.0)
    options = parser.parse_args()
    game = legos_envs.make(options.env, **parse_assignments(options.arg, "--arg")).unwrapped.game
    for step in options.step:
        kl = (options.kl[0], options.kl[1])
        found = descend(game, step, kl, options.steps, options.magnet_every, options.noise)
        print(f"step {step:g}: NashConv after each tenth  {'  '.join(f'{value:.3f}' for value in found)}", flush=True)


if __name__ == "__main__":
    main()
