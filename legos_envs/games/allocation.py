"""How well goods are allocated: Pareto optimality, and the value left on the table.

An allocation gives every player some units of each kind of goods; player i values it at the sum of its units times
`values[i]`. It is *Pareto optimal* if no other allocation of the same goods makes somebody better off and nobody worse
off. The *gap* is the largest increase in the weighted sum of values that such an allocation can bring: 0 exactly at an
optimum.

Two ways to find it:

- `by_enumeration` tries every allocation in whole units. Exact.
- `by_linear_program` lets goods be divided: maximise sum_i w_i v_i·x_i subject to x_i >= 0, sum_i x_i = all goods,
  v_i·x_i >= what i has now. Whole allocations are a special case of divided ones, so this gap is never below the exact
  one. A gap of 0 therefore proves optimality, but a positive one may be attainable only by dividing goods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from legos_envs import arguments

MAX_ALLOCATIONS = 20_000
"""`pareto` enumerates up to this many allocations; two players with three kinds of 12 units each have 2,197."""
ROUNDING = 1e-7
Rows = Sequence[Sequence[int]]


class Verdict(NamedTuple):
    """What can still be gained. `method` is `"enumeration"` (whole units) or `"linear_program"` (divisible goods)."""

    optimal: bool
    gap: float
    method: str


def count_allocations(totals: Sequence[int], players: int) -> int:
    """The number of ways to give units to players: the product of (total + players - 1 choose players - 1)."""
    return math.prod(math.comb(total + players - 1, players - 1) for total in totals)


def pareto(values: Rows, stock: Rows, weights: Sequence[float] | None = None) -> Verdict | None:
    """Whether an allocation is Pareto optimal, and its gap: by enumeration up to `MAX_ALLOCATIONS`, by linear
    programming beyond. Returns None if this takes linear programming and scipy is missing.

    Args:
        values: value of one unit, (players, kinds).
        stock: units owned, (players, kinds).
        weights: weights of the players' values in the gap, (players,); 1 by default.
    """
    if count_allocations([sum(units) for units in zip(*stock)], len(stock)) <= MAX_ALLOCATIONS:
        return by_enumeration(values, stock, weights)
    try:
        return by_linear_program(values, stock, weights)
    except ImportError:
        return None


def utilities(values: Rows, totals: Sequence[int]) -> np.ndarray:
    """The value to every player of every allocation in whole units, (players, allocations)."""
    players = len(values)
    sums = np.zeros((players, 1), dtype=np.int64)
    for kind, total in enumerate(totals):
        worth = _shares(int(total), players) * np.array([[row[kind]] for row in values], dtype=np.int64)
        sums = (sums[:, :, None] + worth[:, None, :]).reshape(players, -1)
    return sums


def by_enumeration(values: Rows, stock: Rows, weights: Sequence[float] | None = None) -> Verdict:
    """`pareto` over all allocations in whole units, no matter how many."""
    w = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    now = [[sum(v * n for v, n in zip(row, units))] for row, units in zip(values, stock)]
    rises = utilities(values, [sum(units) for units in zip(*stock)]) - np.array(now, dtype=np.int64)
    better = rises[:, rises.min(axis=0) >= 0]
    gap = float((w @ better).max())  # the current allocation is among them, so the gap is at least 0
    return Verdict(not better.any(), gap, "enumeration")


def by_linear_program(values: Rows, stock: Rows, weights: Sequence[float] | None = None) -> Verdict:
    """`pareto` over all allocations of divisible goods.

    Raises:
        ImportError: scipy is missing.
    """
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise ImportError(f"linear programs need scipy: {arguments.install('tasks')}") from error

    v, now = np.asarray(values, dtype=float), np.asarray(stock, dtype=float)
    players, kinds = v.shape
    w = np.ones(players) if weights is None else np.asarray(weights, dtype=float)
    have = (v * now).sum(axis=1)
    own = np.zeros((players, players * kinds))  # row i: the value of the flat x to player i
    for i in range(players):
        own[i, i * kinds : (i + 1) * kinds] = v[i]
    shared = np.tile(np.eye(kinds), players)
    result = linprog(
        -(w[:, None] * v).ravel(), A_ub=-own, b_ub=-have, A_eq=shared, b_eq=now.sum(axis=0), method="highs"
    )
    if not result.success:
        raise RuntimeError(f"the linear program was not solved: {result.message}")
    gap = max(0.0, float(-result.fun - w @ have))
    optimal = gap <= ROUNDING * max(1.0, float(abs(w @ have)))
    return Verdict(optimal, 0.0 if optimal else gap, "linear_program")


@lru_cache(256)
def _shares(total: int, players: int) -> np.ndarray:
    """All ways to give `total` equal units to players, (players, ways). Do not mutate."""
    if players == 1:
        return np.array([[total]], dtype=np.int64)
    parts = [np.insert(_shares(total - first, players - 1), 0, first, axis=0) for first in range(total + 1)]
    return np.concatenate(parts, axis=1)
