"""The numbers of an evaluation during training: which are results, and which the ends of their 95 % intervals.

A result `NAME` may have `NAME_low` and `NAME_high` beside it; those of the weight average are `NAME_average`,
`NAME_low_average`, `NAME_high_average`. Shares of games are named as in `legos_train.evaluation.outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping

AVERAGE = "_average"
SELDOM = ("draw", "invalid", "opponent_invalid", "truncated", "unscored")
"""Ways for a game to end that are told only where they came about."""

Numbers = Mapping[str, float]


def results(*tables: Numbers) -> list[str]:
    """The results of the tables, in their order, without the ends of intervals and without endings that never came."""
    every = dict.fromkeys(name for table in tables for name in table)
    return [
        name
        for name in every
        if not _is_end(name, every)
        and (_kind(name) not in SELDOM or any(table.get(name) for table in tables) or f"{name}_low" in every)
    ]


def interval(numbers: Numbers, name: str) -> tuple[float, float] | None:
    """Both ends of the interval of a result, where they are known."""
    stem, suffix = (name.removesuffix(AVERAGE), AVERAGE) if name.endswith(AVERAGE) else (name, "")
    low, high = numbers.get(f"{stem}_low{suffix}"), numbers.get(f"{stem}_high{suffix}")
    return None if low is None or high is None else (low, high)


def formatted(numbers: Numbers, name: str, digits: int = 4) -> str:
    """`0.312 (0.21 to 0.42)`, or `0.3125` where there is no interval; empty where it was not measured."""
    if (value := numbers.get(name)) is None:
        return ""
    ends = interval(numbers, name)
    return f"{value:.3f} ({ends[0]:.2f} to {ends[1]:.2f})" if ends else f"{value:.{digits}f}"


def _is_end(name: str, every: Mapping[str, object]) -> bool:
    stem, suffix = (name.removesuffix(AVERAGE), AVERAGE) if name.endswith(AVERAGE) else (name, "")
    return any(stem.endswith(end) and stem.removesuffix(end) + suffix in every for end in ("_low", "_high"))


def _kind(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(AVERAGE)
