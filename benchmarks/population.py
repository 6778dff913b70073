"""The cost of several learners: trained tokens per CPU-second of one policy, of eight, and of one of the eight alone.

The three train in turn, in one process.

    python -m benchmarks.population --env TicTacToe-v0 --games 256

The run has eight copies of an environment, so the games are the same; with `[[learner]]` tables each copy has its own
policy. Equal prompts of one policy are computed once, those of two policies are not, so much depends on the number of
distinct prompts: Kuhn poker has 12 in total. A single learner with its share of the games has no such advantage: it is
what eight runs, one after the other, would cost.
"""

from __future__ import annotations

import argparse
import resource
from typing import Any

import legos_envs
from legos_train import Trainer
from legos_train.config import from_dict
from legos_train.run import build


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="TicTacToe-v0")
    p.add_argument("--games", type=int, default=256)
    p.add_argument("--learners", type=int, default=8)
    p.add_argument("--steps", type=int, default=3)
    options = p.parse_args()
    copies = [{"id": options.env, "name": f"copy_{number}"} for number in range(options.learners)]
    agents = legos_envs.make(options.env).possible_agents
    tables = [{"name": c["name"], "roles": [f"{c['name']}/{agent}" for agent in agents]} for c in copies]
    several = f"{options.learners} learners"
    trainers = {
        "1 learner": trainer(copies, [], options.games),
        several: trainer(copies, tables, options.games),
        "1 alone": trainer(copies[:1], [], options.games // options.learners),
    }
    tokens, seconds = dict.fromkeys(trainers, 0), dict.fromkeys(trainers, 0.0)
    for step in range(options.steps + 1):
        for who, one in trainers.items():
            before = cpu()
            record = one.step()
            if step:  # the first one warms up
                tokens[who] += record["action_tokens"]
                seconds[who] += cpu() - before
    speed = {who: tokens[who] / seconds[who] for who in trainers}
    for who, value in speed.items():
        ratio = "" if who == several else f", {several} are {speed[several] / value:.2f} times as fast"
        print(f"{who}: {value:,.0f} tokens per CPU-second{ratio}")
    for one in trainers.values():
        one.parts.close()


def trainer(envs: list[dict[str, str]], learners: list[dict[str, Any]], games: int) -> Trainer:
    off: dict[str, Any] = {"eval": {"every": 0}, "checkpoint": {"every": 0}}
    return Trainer(build(from_dict({"env": envs, "learner": learners, "batch_size": games, **off})))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
