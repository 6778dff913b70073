"""Pig, solved by dynamic programming (Neller and Presser, 2004), in numpy.

Arrays over positions are indexed (total, own, other): the points of the current turn, the mover's score and the
opponent's. Values are the mover's: 1 for a win, -1 for a loss. As in `PigDice-v0`, the first roll of a turn is forced,
and a turn whose score plus total reaches the goal wins at once; neither changes the value of perfect play.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

CHANGE = 1e-10


class PigSolution(NamedTuple):
    """Perfect play without a round limit.

    `values` is (own, other): the mover's value before its first roll. `hold` is (total, own, other), bool: whether it
    holds after the roll that led to the total.
    """

    values: np.ndarray
    hold: np.ndarray


def turn(after: np.ndarray, hold: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """One step of backward induction over a whole turn.

    Args:
        after: (other, own) value to the opponent when its turn begins.
        hold: (total, own, other) the mover's probability of holding; None for the best choice.

    Returns:
        (own, other) value to the mover when its turn begins, and `hold`.
    """
    goal = len(after)
    passed = -after.T
    chosen = np.zeros((goal, goal, goal), bool) if hold is None else hold
    worth = np.ones((goal + 8, goal, goal))  # by total; 1 wherever own + total reaches the goal
    ahead = np.full((goal, goal), 5.0)  # the sum of worth over the totals after a roll of 2 to 6
    for total in range(goal - 1, 0, -1):
        short = goal - total  # how many scores do not reach the goal with this total
        ahead += worth[total + 2] - worth[total + 7]
        rolled = (passed[:short] + ahead[:short]) / 6
        held = passed[total:]
        if hold is None:
            chosen[total, :short] = held >= rolled
            np.maximum(held, rolled, out=worth[total, :short])
        else:
            worth[total, :short] = rolled + hold[total, :short] * (held - rolled)
    return (passed + worth[2:7].sum(0)) / 6, chosen


@lru_cache(8)
def solve(goal: int) -> PigSolution:
    """Perfect play to a goal, by value iteration over turns. Cached per goal: do not mutate."""
    values = np.zeros((goal, goal))
    while True:
        better, hold = turn(values)
        if np.abs(better - values).max() < CHANGE:
            return PigSolution(better, hold)
        values = better
