"""Episodes made by hand for the tests of credit."""

from __future__ import annotations

import random

from legos_envs.records import Episode, Trajectory, Turn


def episode(agents, *, env="G", group=None, seed=0):
    """agents: {agent: (role, [(prompt, reward), ...])}; a role that ends in `*` is not trained."""
    trajectories = {}
    for agent, (role, turns) in agents.items():
        made = [Turn(({"role": "user", "content": prompt},), "x", reward) for prompt, reward in turns]
        trajectories[agent] = Trajectory(agent, role.rstrip("*"), not role.endswith("*"), made)
    return Episode(env, seed, {}, trajectories, group=group)


def match(result, turns=(2, 1), **options):
    """A zero-sum match: `first` gets `result`, at its last of two turns; `second` the opposite."""
    seats = (("first", result), ("second", -result))
    return episode(
        {s: (s, [(f"{s}{t}", r if t == n - 1 else 0.0) for t in range(n)]) for (s, r), n in zip(seats, turns)},
        **options,
    )


def random_batch(seed, size=24):
    rng = random.Random(seed)
    batch = []
    for i in range(size):
        agents = {
            f"{table}{role}_{k}": (
                role,
                [(rng.choice("abc"), rng.gauss(0, 1) * 10 ** rng.randint(-3, 3)) for _ in range(rng.randint(1, 3))],
            )
            for table in ("", "t0/", "t0/u/")
            for role in ("x", "y")
            for k in range(rng.randint(1, 3))
        }
        batch.append(episode(agents, env=rng.choice("GH"), group=rng.randrange(4), seed=i))
    return batch
