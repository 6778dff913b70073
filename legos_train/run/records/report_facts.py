"""Facts for a report that are in no metrics row: the policy in every situation, exact numbers of uniform play and of an
equilibrium, what the run's schedule reaches without sampling, and who beats whom in the league.

Stored as `figures/data.json`, so that a report can be rewritten without the model.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from legos_envs import exact
from legos_train.config import TrainConfig
from legos_train.evaluation import exact_values
from legos_train.league import League, Score
from legos_train.run.all_actions.tabular import expected_run
from legos_train.run.parts.parts import Parts

MANY_ROWS, MOST_SOLVED = 60, 5000
"""Games with more information sets get no policy table and no lines for uniform play and an equilibrium."""
MOST_WORK = 400_000
"""Nodes of the game times steps of the run up to which the schedule runs again without sampling; a few seconds."""
MOST_POINTS = 12
REFERENCES = {"random": "uniform play", "optimal": "equilibrium"}


def facts_of(parts: Parts) -> dict[str, Any]:
    """`strategy`, `references`, `unsampled` and `league` as JSON values; each only if there is something to report."""
    found = {
        "strategy": _strategy(parts),
        "references": _references(parts),
        "unsampled": _unsampled(parts),
        "league": _league(parts.league),
    }
    return {name: value for name, value in found.items() if value}


def _strategy(parts: Parts) -> dict[str, Any]:
    """Action probabilities before and after and of an equilibrium, in every information set of a small game.

    Learners that share the seats have columns of their own.
    If a run began from an adapter, its initial probabilities are unknown at its end; the column is then named
    "base model" and has those of the base model.
    """
    measurer = parts.measurer
    tasks = [task for task in measurer.tasks.values() if not task.held_out]
    task, infos = tasks[0], tasks[0].info_sets
    if any(not task.again for task in tasks[1:]) or infos is None or len(infos) > MANY_ROWS:
        return {}
    base = "before" if parts.config.init_adapter is None else "base model"
    columns: dict[str, Any] = {base: measurer.table(task, None)}
    for one, (name, adapter) in itertools.product(tasks, (("last", "policy"), ("average", "average"))):
        players = [measurer.player(one, agent, adapter) for agent in one.slot.seats]
        if {player.adapter for player in players} <= set(parts.engine.adapters()):
            columns[f"{one.prefix.removesuffix('/')}: {name}" if tasks[1:] else name] = measurer.table(one, adapter)
    with suppress(ValueError):  # a game without a known equilibrium
        solution = exact.nash(task.env.game)  # type: ignore[attr-defined]
        columns["an equilibrium"] = {info: solution(info) for info in infos}
    return {"columns": list(columns), "rows": _strategy_rows(infos, list(columns.values()))}


def _strategy_rows(infos: Sequence[Any], tables: Sequence[Any]) -> list[list[Any]]:
    """Rows of situation, move and shares. Equal blocks of two seats appear once; different ones with the seat."""
    blocks: list[tuple[Any, list[list[Any]]]] = []
    for info in infos:
        shares = [[move, [table[info].get(move, 0.0) for table in tables]] for move in info.legal]  # without zeros
        if not any(other.view == info.view and _alike(rows, shares) for other, rows in blocks):
            blocks.append((info, shares))
    views = Counter(info.view for info, _ in blocks)
    return [
        [info.view if views[info.view] == 1 else f"player {info.player}: {info.view}", *row]
        for info, shares in blocks
        for row in shares
    ]


def _alike(one: list[list[Any]], other: list[list[Any]]) -> bool:
    """Whether two blocks of rows have the same moves, and equal shares to three digits."""
    pairs = [(a, b) for (_, left), (_, right) in zip(one, other) for a, b in zip(left, right)]
    return [move for move, _ in one] == [move for move, _ in other] and all(abs(a - b) < 5e-4 for a, b in pairs)


def _references(parts: Parts) -> dict[str, dict[str, float]]:
    """For each metric, the values of uniform legal play and, if a game was solved, of an equilibrium."""
    found: dict[str, dict[str, float]] = {}
    for task in parts.measurer.tasks.values():
        if task.info_sets is None or len(task.info_sets) > MOST_SOLVED:
            continue
        for name in ("random", "optimal"):
            table = None
            with suppress(ValueError):  # a game without a known equilibrium
                table = exact_values.code_table(task.env, name)
            for key, value in ({} if table is None else exact_values.policy_metrics(task.env, table)).items():  # type: ignore[arg-type]
                found.setdefault(task.prefix + key, {})[REFERENCES[name]] = round(value, 9)
    return found


def _unsampled(parts: Parts) -> dict[str, Any]:
    """What mirror descent with exact values reaches on the run's schedule, see `tabular.expected_run`.

    For NashConv `last` and `average`, lists of [step, value]; or `left_out`, why there are none.
    """
    config = parts.config
    found: dict[str, Any] = {}
    for task in parts.measurer.tasks.values():
        if not task.exactly or task.held_out:
            continue
        env: Any = task.env
        graph = exact.graph_of(env.game)
        if left_out := _no_unsampled_run(config, len(graph.children) * config.steps):
            found[f"{task.prefix}nash_conv"] = {"left_out": left_out}
            continue
        base = parts.measurer.table(task, None)
        start = [np.array([base[info][move] for move in info.legal]) for info in graph.infosets]
        every = max(1, config.steps // MOST_POINTS)
        for step, *tables in expected_run(graph, start, config):
            if step != 1 and step % every and step != config.steps:
                continue
            for line, table in zip(("last", "average"), tables):
                if table is None:
                    continue
                policy = {i: dict(zip(i.legal, (p / p.sum()).tolist())) for i, p in zip(graph.infosets, table)}
                value = float(exact.nash_conv(env.game, policy.__getitem__))
                lines = found.setdefault(f"{task.prefix}nash_conv", {})
                lines.setdefault(line, []).append([step, round(value, 9)])
    return found


def _no_unsampled_run(config: TrainConfig, work: int) -> str | None:
    """Why there is no run without sampling to compare this one with; None if there is one."""
    if work > MOST_WORK:
        return f"the game's tree times the run's steps is {work:,} nodes, above {MOST_WORK:,}"
    if config.init_adapter is not None:
        return "the run began from an adapter"
    if any(own.loss != config.loss for own in config.learners.values()):
        return "the learners have losses of their own"
    if config.loss.token_loss.imitates:
        return f"the loss {config.loss.name!r} imitates"
    if not config.loss.token_loss.mirror and not (config.loss.kl and config.loss.kl_weight(config.steps, config.steps)):
        return "without a KL penalty its steps have no length"
    return None


def _league(league: League | None) -> dict[str, Any]:
    """Members with games, win rates by seat and ratings; the payoffs between members that were played."""
    if league is None or not (league.members or len(league.learners) > 1):
        return {}
    many, several = len(league.standings) > 1, len(league.learners) > 1
    scores: dict[str, dict[str, Score]] = {}  # by member, then by seat
    for env, standing in league.standings.items():
        for learner, against in standing.results.items():
            begins = (f"{learner}: " if several else "") + (f"{env}/" if many else "")
            for name, by_seat in against.scores.items():
                scores.setdefault(name, {}).update({f"{begins}{seat}": score for seat, score in by_seat.items()})
    members = [name for name in (*league.learners, *league.members) if name in scores]
    seats = sorted({seat for name in members for seat in scores[name]})
    rates: list[list[float | None]] = []
    for name in members:
        found = [scores[name].get(seat) for seat in seats]
        rates.append([(s.wins + s.draws / 2) / s.games if s and s.games else None for s in found])
    games = [sum(score.games for score in scores[name].values()) for name in members]
    out: dict[str, Any] = {"members": members, "seats": seats, "win_rates": rates, "games": games, "payoffs": []}
    if several:
        out["learners"] = list(league.learners)
    for env, standing in league.standings.items():
        names = standing.pairs.known(league.members) if standing.pairs.games else []
        if len(names) > 1:
            mixture = league.mixture(env=env)
            shares = {name: float(mixture.get(name, 0.0)) for name in names}
            matrix = standing.pairs.matrix(names).tolist()
            out["payoffs"].append({"env": env if many else "", "names": names, "matrix": matrix, "mixture": shares})
    out["ratings"] = {
        name: [float(skill.mu), float(skill.sigma)] for name, skill in league.ratings.items() if math.isfinite(skill.mu)
    }
    return out
