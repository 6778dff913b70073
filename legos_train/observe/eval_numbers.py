"""The numbers of an evaluation during training: their names, units and 95 % intervals.

A result `NAME` may come with `NAME_low` and `NAME_high`; those of the weight average are `NAME_average`,
`NAME_low_average`, `NAME_high_average`. Shares of games are named as in `legos_train.evaluation.outcomes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

Z95 = 1.96
"""Half a 95 % interval of a normal distribution, in standard errors."""
AVERAGE = "_average"
BASE_WINS = "wins_vs_base"
MIXTURE = "nash_conv_mixture"
WORTH = (MIXTURE, "nash_conv", "no_loss", "optimal_move", BASE_WINS, "return")
"""The numbers that measure the quality of weights, besides every `vs_OPPONENT`."""
LESS_IS_BETTER = (MIXTURE, "nash_conv", "illegal", "loss", "invalid", "truncated", "unscored")
SELDOM = ("draw", "invalid", "opponent_invalid", "truncated", "unscored")
"""Endings of games that are shown only if they occurred."""
NAMES = {
    "nash_conv": "NashConv (0 is an equilibrium)",
    MIXTURE: "NashConv of the league's mixture",
    "optimal_move": "probability of an optimal move",
    "no_loss": "no-loss rate against random play",
    "no_loss_optimal": "no-loss rate against optimal play",
    "illegal": "probability of an illegal answer",
    "vs_random": "mean return against random play",
    BASE_WINS: "win rate against the base model",
    "accuracy": "share of right answers",
    "success": "share of seats that succeeded",
    "win": "share of games won",
    "draw": "share of games drawn",
    "loss": "share of games lost",
    "invalid": "share of games ended by an invalid move",
    "opponent_invalid": "share of games ended by another's invalid move",
    "truncated": "share of games ended by the turn limit",
    "unscored": "share of games that were not judged",
    "return": "mean return",
}
ROLE_RETURN = "return_"
"""Begins the name of a role's mean return: `return_prover`."""
STARTS = {
    ROLE_RETURN: "mean return of {}",
    "vs_": "mean return against {}",
    "wins_vs_": "win rate against the weights of {}",
    "pass@": "share of problems solved in {} tries",
}
UNITS = dict.fromkeys(("nash_conv", MIXTURE), "what both players could gain by deviating, in units of return")
ENDINGS = {
    "win": "won",
    "draw": "drawn",
    "loss": "lost",
    "invalid": "own invalid move",
    "opponent_invalid": "other's invalid move",
    "truncated": "turn limit",
    "unscored": "not judged",
}
SEAT = "_as_"
"""Separates a number from the agent whose seat it is for: `no_loss_optimal_as_player_0`."""
EXACT = (MIXTURE, "nash_conv", "optimal_move", "no_loss", "no_loss_optimal", "illegal")

Numbers = Mapping[str, float]


def results(*tables: Numbers) -> list[str]:
    """The names of the results in the tables, in order, without interval ends and endings that never occurred."""
    every = dict.fromkeys(name for table in tables for name in table)
    return [
        name
        for name in every
        if not _is_end(name, every)
        and (_kind(name) not in SELDOM or any(table.get(name) for table in tables) or f"{name}_low" in every)
    ]


def by_weights(evaluation: Numbers) -> tuple[dict[str, float], dict[str, float]]:
    """Splits an evaluation into the numbers of the last weights and, under the same names, of the weight average.

    The value of a league's mixture belongs to both.
    """
    last = {name: value for name, value in evaluation.items() if not name.endswith(AVERAGE)}
    average = {name.removesuffix(AVERAGE): value for name, value in evaluation.items() if name not in last}
    mixed = {name: value for name, value in last.items() if _kind(name) == MIXTURE}
    return last, {**mixed, **average} if average else {}


def ends_of(numbers: Numbers, name: str) -> tuple[float, float] | None:
    """Both ends of the interval of a result, if known."""
    stem, suffix = (name.removesuffix(AVERAGE), AVERAGE) if name.endswith(AVERAGE) else (name, "")
    low, high = numbers.get(f"{stem}_low{suffix}"), numbers.get(f"{stem}_high{suffix}")
    return None if low is None or high is None else (low, high)


def is_point(ends: tuple[float, float]) -> bool:
    """Whether an interval has no width: the games had one seed or all ended alike, so the role of chance is unknown."""
    return ends[1] - ends[0] < 1e-9


def latest(evaluations: Iterable[Numbers | None]) -> dict[str, float]:
    """The numbers of each env's last evaluation, from old to new: not every evaluation measures all envs."""
    found: dict[str, Numbers] = {}
    for evaluation in evaluations:
        fresh: dict[str, dict[str, float]] = {}
        for name, value in (evaluation or {}).items():
            fresh.setdefault(name.rpartition("/")[0], {})[name] = value
        found |= fresh
    return {name: value for numbers in found.values() for name, value in numbers.items()}


def formatted(numbers: Numbers, name: str, digits: int = 4) -> str:
    """`0.312 (0.21 to 0.42)`, or `0.3125` without an interval; empty if it was not measured."""
    if (value := numbers.get(name)) is None:
        return ""
    ends = ends_of(numbers, name)
    if ends and is_point(ends):
        return f"{value:.3f}"
    return f"{value:.3f} ({ends[0]:.2f} to {ends[1]:.2f})" if ends else f"{value:.{digits}f}"


def _is_end(name: str, every: Mapping[str, object]) -> bool:
    stem, suffix = (name.removesuffix(AVERAGE), AVERAGE) if name.endswith(AVERAGE) else (name, "")
    return any(stem.endswith(end) and stem.removesuffix(end) + suffix in every for end in ("_low", "_high"))


def _kind(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(AVERAGE)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value read from a file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_worth(kind: str) -> bool:
    """Whether a number measures the quality of weights."""
    return kind in WORTH or kind.startswith("vs_")


def direction(kind: str) -> int:
    """1 if higher is better, -1 if lower is."""
    return -1 if kind in LESS_IS_BETTER else 1


def metric_name(key: str) -> str:
    """A readable name of a measured number; with several envs keys are `ENV/NUMBER`."""
    env, slash, kind = key.rpartition("/")
    base, in_seat, agent = kind.partition(SEAT)
    name = NAMES.get(base)
    name = f"{name} as {agent}" if name and in_seat else name
    for start, words in STARTS.items():
        if name is None and kind.startswith(start):
            who = kind.removeprefix(start)
            name = words.format(who if start == ROLE_RETURN else who.replace("_", " "))
    return (f"{env}: " if slash else "") + (name or kind.replace("_", " "))


def unit_of(kind: str) -> str:
    """The unit of a number."""
    return "return per game" if kind.startswith(("return", "vs_")) else UNITS.get(kind, "share")
