"""Builds the league of a run: who the learners play against."""

from __future__ import annotations

from dataclasses import replace

from legos_train.arena import Arena
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError, PolicyError
from legos_train.evaluation import Measurer
from legos_train.league import MODES, League, Rival, RivalLeague
from legos_train.model import WeightStore
from legos_train.run.generation.weight_sync import member_version


def league_of(config: TrainConfig, arena: Arena, backend: WeightStore, *, fill: bool) -> League | None:
    """The run's league; None for mirror play of learners that share no seats.

    Args:
        config: settings of the run.
        arena: with its envs and actors.
        backend: reads the weights of other runs.
        fill: add the snapshots of `league.pool_from` to the pool; False if the pool will come from a checkpoint.

    Raises:
        ConfigError: no env has two trained seats, or one with `league = true` does not; `psro` with other than two
            sides.
        ConfigError: `league.pool_from` has no suitable snapshots.
    """
    draws = config.league.rule.draws
    if not draws and not arena.rivals:
        return None
    envs = arena.league_envs()
    asked = [slot.name for slot in arena.envs.values() if slot.league]
    wrong = [name for name in asked if name not in envs] or ([] if envs else list(arena.envs))
    if wrong and draws:
        raise ConfigError(
            f"league.mode = {config.league.mode!r} needs two trained seats in {', '.join(wrong)}; for a fixed "
            "opponent use an actor instead, such as --seat ROLE=random"
        )
    if config.league.rule.needs_payoffs:
        others = " or ".join(repr(name) for name, row in MODES.items() if row.keeps_snapshots and not row.needs_payoffs)
        for name in envs:
            if (count := len(arena.sides(arena.envs[name]))) != 2:
                raise ConfigError(
                    f"league.mode = {config.league.mode!r} fills a payoff matrix of two sides; {name} has {count}. Use "
                    f"{others}, or league = false in its table [[env]]"
                )
    league = League(config.league, config.seed, envs)
    if arena.rivals:
        rivals = {one.name: Rival(one.opponents or tuple(arena.learners), one.latest) for one in config.learner}
        league = RivalLeague(
            config.league, config.seed, envs, rivals, {name: arena.claims(arena.envs[name]) for name in envs}
        )
    if fill and config.league.pool_from is not None:
        for name, weights in backend.read_run(config.league.pool_from, config.league.pool).items():
            league.add(name, replace(weights, version=member_version(name)))
    return league


def check_opponents(league: League, measurer: Measurer) -> None:
    """Creates a player for every name in `league.opponents` now, so that a wrong name fails before it is drawn."""
    for word in league.settings.opponents:
        for env in league.standings:
            try:
                measurer.opponent(measurer.tasks[env], word)
            except PolicyError as error:
                raise ConfigError(f"league.opponents: {error}") from None
