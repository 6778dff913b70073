"""The games between league members that fill a payoff matrix."""

from __future__ import annotations

from statistics import fmean

from legos_envs.table import keyed_generator
from legos_train.arena import Arena
from legos_train.league import League, sides_of
from legos_train.rollout import Generator, Job


def fill_payoffs(league: League, arena: Arena, generator: Generator, seed: int) -> None:
    """Plays what `psro` lacks, in each env: `pair_games` games of every pair that has not met there.

    A game that nobody could score counts for nothing; a side of several seats by its mean return.
    """
    for env in league.standings:
        slot = arena.envs[env]
        live = arena.live(slot, arena.trained_roles(slot))
        for pair in league.missing_pairs(env):
            sides = sides_of(live, {agent: slot.seats[agent][0] for agent in live})
            number = keyed_generator(seed, f"payoffs of {pair[0]} and {pair[1]} in {env}")
            players = arena.players(slot)
            for side, member in zip(sides, pair, strict=True):
                players |= {agent: arena.opponent(slot, agent, member) for agent in side}
            seeds = number.integers(2**31, size=league.pair_games).tolist()
            jobs = [Job(slot.name, s, players, {}, slot.options, None, k, ()) for k, s in enumerate(seeds)]
            episodes = [e for e in generator.run(jobs) if e.outcome != "unscored"]
            paid = [[fmean(e.trajectories[a].total for a in side) for side in sides] for e in episodes]
            league.record_pair(*pair, paid, env)
