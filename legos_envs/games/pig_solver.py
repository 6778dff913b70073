"""Pig, solved by dynamic programming (Neller and Presser, 2004), in numpy.

Arrays over positions are (total, own, other): the points of the present turn, the mover's score and the other's. Values
are what the mover gets: 1 for a win, -1 for a loss. As in `PigDice-v0` the first roll of a turn is forced, and a turn
that brings score and total to the goal wins at once; neither changes the value of perfect play.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

CHANGE = 1e-10


class PigSolution(NamedTuple):
    """Perfect play without a limit of rounds.

    `values` is (own, other): what the mover gets before it has rolled. `hold` is (total, own, other), bool: whether it
    holds after the roll that made the total.
    """

    values: np.ndarray
    hold: np.ndarray


def turn(after: np.ndarray, hold: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """One turn, backwards.

    Args:
        after: (other, own) what the other gets when its turn begins.
        hold: (total, own, other) the mover's probability of holding; None for the best choice.

    Returns:
        (own, other) what the mover gets when its turn begins, and `hold`.
    """
    goal = len(after)
    passed = -after.T
    chosen = np.zeros((goal, goal, goal), bool) if hold is None else hold
    worth = np.ones((goal + 8, goal, goal))  # by total; 1 wherever own + total reaches the goal
    ahead = np.full((goal, goal), 5.0)  # the sum of worth over the totals that a roll of 2 to 6 makes
    for total in range(goal - 1, 0, -1):
        short = goal - total  # the scores that do not reach the goal with this total
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
    """Perfect play to a goal, by value iteration over turns. Kept per goal: do not mutate."""
    values = np.zeros((goal, goal))
    while True:
        better, hold = turn(values)
        if np.abs(better - values).max() < CHANGE:
            return PigSolution(better, hold)
        values = better
