"""How far a league's mixture is from an equilibrium, which is how a population is judged.

The last weights are only a response to that mixture. One member is drawn per game, for each side by its own
probabilities (Lanctot et al. 2017, arXiv 1711.00832).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from legos_envs import exact
from legos_envs.game import Game, InfoSet
from legos_train.evaluation import exact_values
from legos_train.league import League
from legos_train.observe import eval_numbers
from legos_train.rollout.players import actors
from legos_train.run.parts.parts import Parts
from legos_train.run.payoff_games import model_table


def league_value(parts: Parts, envs: Collection[str] | None = None) -> dict[str, float]:
    """`nash_conv_mixture` in each env that can be solved; for the policy itself as long as there are no members.

    The mixture contains only what the run has trained: with players of `league.opponents`, such as `optimal`, a run
    that learns nothing would be at the equilibrium. Left out are games with more than `MANY_POSITIONS` information
    sets, where reading every member would take longer than training.

    Args:
        parts: the run.
        envs: their names; all by default.
    """
    league, found = parts.league, dict[str, float]()
    if league is None or not league.settings.rule.keeps_snapshots:
        return {}
    parts.tables = {key: table for key, table in parts.tables.items() if league.has_weights(key[1])}
    for name in league.standings:
        task = parts.measurer.tasks[name]
        small = task.exactly and len(task.info_sets or ()) <= exact_values.MANY_POSITIONS
        if (envs is None or name in envs) and small and len(task.slot.seats) == 2:
            prefix = f"{name}/" if len(parts.arena.envs) > 1 else ""  # it is of all learners
            found[f"{prefix}{eval_numbers.MIXTURE}"] = _value(parts, league, task)
    return found


def mixture(
    game: Game, sides: Sequence[Sequence[tuple[float, exact_values.PolicyTable]]]
) -> dict[InfoSet, dict[str, float]]:
    """The policy that plays as if one of several were drawn for each player before a game (Kuhn 1953).

    Args:
        game: a game with perfect recall.
        sides: for each player, policies with their probabilities.
    """
    graph = exact.graph_of(game)
    found: dict[InfoSet, dict[str, float]] = {}
    for player, drawn in enumerate(sides):
        own = {at: info for at, info in enumerate(graph.infosets) if info.player == player}
        if len(drawn) == 1:  # itself, without rounding
            found |= {info: dict(drawn[0][1][info]) for info in own.values()}
            continue
        sums = {info: dict.fromkeys(info.legal, 0.0) for info in own.values()}
        for share, policy in drawn:
            played = graph.probabilities(policy.__getitem__)
            reached = graph.reach([played if i == player else None for i in range(game.num_players)])
            for at, info in own.items():
                weight = share * sum(reached[node] for node in graph.members[at])
                for move, chance in zip(info.legal, played[at]):
                    sums[info][move] += weight * chance
        for info, moves in sums.items():
            total = sum(moves.values())
            found[info] = {move: one / total if total else 1 / len(moves) for move, one in moves.items()}
    return found


def _value(parts: Parts, league: League, task: Any) -> float:
    sides = []
    for side in (0, 1):
        every = league.mixture(side, task.slot.name)
        drawn = {name: p for name, p in every.items() if p > 0 and (league.has_weights(name) or name == actors.POLICY)}
        drawn = drawn or {actors.POLICY: 1.0}
        total = sum(drawn.values())
        sides.append([(share / total, _table(parts, league, task, name)) for name, share in drawn.items()])
    return float(exact.nash_conv(task.env.game, mixture(task.env.game, sides).__getitem__))


def _table(parts: Parts, league: League, task: Any, name: str) -> Any:
    """A member's probabilities; those of snapshots, which do not change, are computed once."""
    key = task.slot.name, name
    if key in parts.tables:
        return parts.tables[key]
    table = model_table(parts.measurer, task, name)
    if league.has_weights(name):
        parts.tables[key] = table
    return table
