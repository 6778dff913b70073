"""The payoffs between league members that `psro` needs: from games, or exactly where the game can be solved."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from legos_envs.table import keyed_generator
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer, exactly
from legos_train.league import League, sides_of
from legos_train.rollout import Job
from legos_train.run.parts import Parts


def fill_payoffs(parts: Parts, league: League) -> None:
    """Finds what `psro` lacks in each env: the payoffs of every pair that has not met there."""
    for env in league.standings:
        if pairs := league.missing_pairs(env):
            (_play if league.settings.payoff_games else _solve)(parts, league, env, pairs)


def _play(parts: Parts, league: League, env: str, pairs: list[tuple[str, str]]) -> None:
    """By `pair_games` games. One that nobody could score counts for nothing; a side of several seats by its mean."""
    arena = parts.arena
    slot = arena.envs[env]
    live = arena.live(slot, arena.trained_roles(slot))
    sides = sides_of(live, {agent: slot.seats[agent][0] for agent in live})
    for pair in pairs:
        number = keyed_generator(parts.config.seed, f"payoffs of {pair[0]} and {pair[1]} in {env}")
        players = arena.players(slot)
        for side, member in zip(sides, pair, strict=True):
            players |= {agent: arena.opponent(slot, agent, member) for agent in side}
        seeds = number.integers(2**31, size=league.pair_games).tolist()
        jobs = [Job(slot.name, s, players, {}, slot.options, None, k, ()) for k, s in enumerate(seeds)]
        episodes = [e for e in parts.sync.local.run(jobs) if e.outcome != "unscored"]
        paid = [[fmean(e.trajectories[a].total for a in side) for side in sides] for e in episodes]
        league.record_pair(*pair, paid, env)


def _solve(parts: Parts, league: League, env: str, pairs: list[tuple[str, str]]) -> None:
    """By the tree of the game: what both seats get on average, over all deals and answers that are legal."""
    course = parts.measurer.courses[env]
    game: Any = course.env.game  # type: ignore[attr-defined]
    tables = {name: _table(parts.measurer, league, course, name) for name in {name for pair in pairs for name in pair}}
    for first, second in pairs:
        paid = [
            exactly.value_against(game, tables[first], tables[second], 0),
            exactly.value_against(game, tables[second], tables[first], 1),
        ]
        league.record_pair(first, second, [paid], env)


def _table(measurer: Measurer, league: League, course: Any, name: str) -> exactly.PolicyTable:
    if name not in league.weights:
        table = exactly.code_table(course.env, name)
        assert table is not None, "check_payoffs has seen to it"
        return table
    players = [measurer.player(course, agent, name) for agent in course.slot.seats]
    return exactly.action_probabilities(course.env, players, course.info_sets)[0]


def check_payoffs(measurer: Measurer, league: League) -> None:
    """Checks that exact payoffs can be computed, where they are configured.

    Raises:
        ConfigError: a game cannot be solved, has not two seats, or nobody knows how likely an opponent's moves are.
    """
    if league.settings.mode != "psro" or league.settings.payoff_games:
        return
    for env in league.standings:
        course = measurer.courses[env]
        if not course.exactly or len(course.slot.seats) != 2:
            raise ConfigError(
                f"league.payoff_games = 0 takes payoffs from the tree of a game of two seats that can be solved, and "
                f"{env} is none as it is set up here; give a number of games, such as 64"
            )
        for word in league.settings.opponents:
            if exactly.code_table(course.env, word) is None:
                raise ConfigError(
                    f"league.payoff_games = 0 has to know how likely every move of an opponent is, and of {word!r} in "
                    f"{env} only answers are known; give a number of games, such as 64"
                )
