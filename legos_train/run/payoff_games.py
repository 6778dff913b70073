"""The games between league members that fill a payoff matrix."""

from __future__ import annotations

from legos_envs.table import keyed_generator
from legos_train.arena import Arena
from legos_train.league import League
from legos_train.rollout import Generator, Job


def fill_payoffs(league: League, arena: Arena, generator: Generator, seed: int) -> None:
    """Plays what `psro` lacks, in the first env: `pair_games` games of every pair that has not met.

    A game that nobody could score counts for nothing.
    """
    slot = next(iter(arena.envs.values()))
    seats = slot.trained[:2]
    for pair in league.missing_pairs():
        number = keyed_generator(seed, f"payoffs of {pair[0]} and {pair[1]}")
        players = arena.players(slot)
        for agent, member in zip(seats, pair, strict=True):
            players[agent] = arena.opponent(slot, agent, member)
        seeds = number.integers(2**31, size=league.pair_games).tolist()
        jobs = [Job(slot.name, s, players, {}, slot.options, None, k, ()) for k, s in enumerate(seeds)]
        episodes = [e for e in generator.run(jobs) if e.outcome != "unscored"]
        league.record_pair(*pair, [[e.trajectories[a].total for a in seats] for e in episodes])
