"""Equilibria of payoff matrices by linear programming: the meta-Nash of PSRO (Lanctot et al. 2017, arXiv 1711.00832).

Maximin (von Neumann 1928): the row player's mixture x maximises v subject to `x @ payoffs[:, j] >= v` for all j.
Solved by HiGHS' dual simplex, so the answer is a vertex: where several equilibria exist, one of those with few members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from legos_envs import arguments

Vector = NDArray[np.float64]
TOLERANCE = 1e-10  # the least that HiGHS accepts, and absolute:
SCALE = 1e3  # so the largest payoff is scaled to this


def meta_nash(payoffs: Sequence[Sequence[float]] | NDArray[np.float64]) -> Vector:
    """The equilibrium mixture of a game in which both sides draw from one pool.

    Args:
        payoffs: (n, n) what the row member gets from the column member. Only the antisymmetric part
            `(payoffs - payoffs.T) / 2` counts: what a member gets in a random seat, relative to the other. The value
            of that game is 0 and both sides may play the same mixture.

    Returns:
        (n,) probabilities.

    Raises:
        ValueError: not square, empty, or not finite.
        ImportError: scipy is not installed.
    """
    table = _matrix(payoffs)
    if table.shape[0] != table.shape[1]:
        raise ValueError(
            f"meta_nash takes a square matrix, members against members; got shape {table.shape}: "
            "for two different sets of strategies use role_nash"
        )
    return _maximin((table - table.T) / 2)


def role_nash(payoffs: Sequence[Sequence[float]] | NDArray[np.float64]) -> tuple[Vector, Vector]:
    """The equilibrium mixtures of a zero-sum game whose two roles differ.

    Args:
        payoffs: (m, n) what the member in the first role gets; the one in the second role gets the negative.

    Returns:
        (m,) and (n,) probabilities, for the first and the second role.

    Raises:
        ValueError: empty or not finite.
        ImportError: scipy is not installed.
    """
    table = _matrix(payoffs)
    return _maximin(table), _maximin(-table.T)


def require_scipy() -> None:
    """Raises ImportError, naming the extra to install, if scipy is missing."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        raise ImportError(
            f'league.mode = "psro" solves linear programs with scipy: {arguments.install("tasks")}'
        ) from None


def _matrix(payoffs: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.float64]:
    table = np.asarray(payoffs, np.float64)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise ValueError(
            f"payoffs must be a matrix of finite numbers with a row and a column at least; got {payoffs!r}"
        )
    return table


def _maximin(table: NDArray[np.float64]) -> Vector:
    """(m,) the mixture of rows of (m, n) `table` whose worst column pays most."""
    require_scipy()
    from scipy.optimize import linprog

    rows, columns = table.shape
    scaled = table * (SCALE / (float(np.abs(table).max()) or 1.0))
    found = linprog(
        c=np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-scaled.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
        method="highs-ds",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    if found.x is None:
        raise RuntimeError(f"HiGHS found no equilibrium of a {rows} by {columns} matrix: {found.message}")
    mixture = np.clip(found.x[:rows], 0.0, None)
    return mixture / mixture.sum()
