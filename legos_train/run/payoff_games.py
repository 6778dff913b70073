"""The payoffs between league members that `psro` needs: from games, or exactly if the game can be solved."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from legos_envs.table import keyed_generator
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer, exact_values
from legos_train.league import League
from legos_train.rollout import Job
from legos_train.run.parts.parts import Parts


def fill_payoffs(parts: Parts, league: League) -> None:
    """Fills in missing payoffs for `psro` in each env: those of every pair that has not met there."""
    for env in league.standings:
        if pairs := league.missing_pairs(env):
            (_play if league.settings.payoff_games else _solve)(parts, league, env, pairs)


def _play(parts: Parts, league: League, env: str, pairs: list[tuple[str, str]]) -> None:
    """From `pair_games` games. Unscored games are ignored; a side with several seats counts by its mean. A pair that
    is then short of games plays others in the next step.
    """
    arena = parts.arena
    slot = arena.envs[env]
    sides = arena.sides(slot)
    for pair in pairs:
        number = keyed_generator(parts.config.seed, f"payoffs of {pair[0]} and {pair[1]} in {env}, step {arena.step}")
        players = arena.players(slot)
        for side, member in zip(sides, pair, strict=True):
            players |= {agent: arena.opponent(slot, agent, member) for agent in side}
        seeds = number.integers(2**31, size=league.pair_games).tolist()
        jobs = [Job(slot.name, s, players, {}, slot.options, None, k, ()) for k, s in enumerate(seeds)]
        episodes = [e for e in parts.sync.local.run(jobs) if e.outcome != "unscored"]
        paid = [[fmean(e.trajectories[a].total for a in side) for side in sides] for e in episodes]
        league.record_pair(*pair, paid, env)


def _solve(parts: Parts, league: League, env: str, pairs: list[tuple[str, str]]) -> None:
    """From the game tree: the average return of both seats over all deals and legal answers."""
    task = parts.measurer.tasks[env]
    game: Any = task.env.game  # type: ignore[attr-defined]
    tables = {name: _known(parts.measurer, league, task, name) for name in {name for pair in pairs for name in pair}}
    for first, second in pairs:
        paid = [
            exact_values.value_against(game, tables[first], tables[second], 0),
            exact_values.value_against(game, tables[second], tables[first], 1),
        ]
        league.record_pair(first, second, [paid], env)


def _known(measurer: Measurer, league: League, task: Any, name: str) -> exact_values.PolicyTable:
    if not league.has_weights(name):
        table = exact_values.code_table(task.env, name)
        assert table is not None, "check_payoffs ensures this"
        return table
    return model_table(measurer, task, name)


def model_table(measurer: Measurer, task: Any, adapter: str | None) -> exact_values.PolicyTable:
    """The probabilities of the model with an adapter (None: the base) in a game that can be solved."""
    players = [measurer.player(task, agent, adapter) for agent in task.slot.seats]
    return exact_values.action_probabilities(task.env, players, task.info_sets)[0]


def check_payoffs(measurer: Measurer, league: League) -> None:
    """Checks that exact payoffs can be computed if configured.

    Raises:
        ConfigError: a game cannot be solved, does not have two seats, or an opponent's move probabilities are unknown.
    """
    if not league.settings.rule.needs_payoffs or league.settings.payoff_games:
        return
    for env in league.standings:
        task = measurer.tasks[env]
        if not task.exactly or len(task.slot.seats) != 2:
            raise ConfigError(
                f"league.payoff_games = 0 takes payoffs from the tree of a solvable two-seat game, and "
                f"{env} as configured here is not one; give a number of games, such as 64"
            )
        for word in league.settings.opponents:
            if exact_values.code_table(task.env, word) is None:
                raise ConfigError(
                    f"league.payoff_games = 0 needs the probability of every move of an opponent, and {word!r} in "
                    f"{env} only gives answers; give a number of games, such as 64"
                )
