"""Nash equilibria of two-player matrix games by support enumeration (Nisan et al., 2007, algorithm 3.4).

For every pair of equal-sized supports, each player's mixture must make all of the opponent's support equally good.
Exponential in the number of moves, exact up to rounding; meant for matrices up to about 8 by 8.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

LIMIT = 10


def equilibria(row: np.ndarray, column: np.ndarray, tolerance: float = 1e-9) -> list[tuple[np.ndarray, np.ndarray]]:
    """All equilibria with equal-sized supports: every equilibrium of a nondegenerate game, at least one of most others.

    Args:
        row: (m, n) payoffs of the row player.
        column: (m, n) payoffs of the column player.
        tolerance: the most a deviation may gain, relative to the largest payoff.

    Raises:
        ValueError: the shapes differ, or both players have more than `LIMIT` moves.
    """
    row, column = np.asarray(row, float), np.asarray(column, float)
    if row.shape != column.shape or row.ndim != 2 or min(row.shape) > LIMIT:
        raise ValueError(
            f"payoffs must be two matrices of the same shape, with at most {LIMIT} moves for one of the players; "
            f"got shapes {row.shape} and {column.shape}"
        )
    slack = tolerance * max(1.0, float(np.abs(row).max()), float(np.abs(column).max()))
    result: list[tuple[np.ndarray, np.ndarray]] = []
    m, n = row.shape
    for size in range(1, min(m, n) + 1):
        for rows in combinations(range(m), size):
            for columns in combinations(range(n), size):
                cell = np.ix_(rows, columns)
                q, p = _indifferent(row[cell], slack), _indifferent(column[cell].T, slack)
                if p is None or q is None:
                    continue
                x, y = np.zeros(m), np.zeros(n)
                x[list(rows)], y[list(columns)] = p, q
                best = (row @ y).max() <= x @ row @ y + slack and (x @ column).max() <= x @ column @ y + slack
                if best and not any(np.allclose(x, a) and np.allclose(y, b) for a, b in result):
                    result.append((x, y))
    return result


def best_equilibrium(row: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The equilibrium found by `equilibria` with the largest sum of payoffs; the first one on a tie.

    Raises:
        ValueError: no equilibrium was found, which happens only in degenerate games.
    """
    result = equilibria(row, column)
    if not result:
        raise ValueError("support enumeration finds no equilibrium: the game is degenerate; change a payoff a little")
    total = np.asarray(row, float) + np.asarray(column, float)
    return max(result, key=lambda mixed: round(float(mixed[0] @ total @ mixed[1]), 9))


def _indifferent(payoffs: np.ndarray, slack: float) -> np.ndarray | None:
    """The mixture over columns, (k,), that makes all rows of (k, k) `payoffs` equally good; None if there is none."""
    size = len(payoffs)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size], system[:size, size], system[size, :size] = payoffs, -1.0, 1.0
    target = np.zeros(size + 1)
    target[size] = 1.0
    mixture, *_ = np.linalg.lstsq(system, target, rcond=None)
    if np.abs(system @ mixture - target).max() > slack or mixture[:size].min() < -slack:
        return None
    weights = np.clip(mixture[:size], 0.0, None)
    return weights / weights.sum()
