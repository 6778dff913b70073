"""The meta-Nash, against hand-worked equilibria and against every pure deviation."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from legos_train import League
from legos_train.league import LeagueSettings
from legos_train.league.nash import meta_nash, role_nash

RPS = [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
BIASED = [[0, -1, 2], [1, 0, -1], [-2, 1, 0]]


def test_hand_worked_equilibria() -> None:
    """Biased RPS with rock over scissors worth 2: rock 1/4, paper 1/2, scissors 1/4 makes every column 0."""
    np.testing.assert_allclose(meta_nash(RPS), [1 / 3] * 3, atol=1e-9)
    np.testing.assert_allclose(meta_nash(BIASED), [1 / 4, 1 / 2, 1 / 4], atol=1e-9)
    np.testing.assert_allclose(meta_nash([[7.0]]), [1.0])
    # A fourth move that loses to everything (a dominated row) gets nothing.
    weak = np.pad(np.array(BIASED, float), (0, 1))
    weak[3, :3], weak[:3, 3] = -3, 3
    np.testing.assert_allclose(meta_nash(weak), [1 / 4, 1 / 2, 1 / 4, 0], atol=1e-9)


def test_only_the_antisymmetric_part_counts() -> None:
    """A symmetric matrix (a common bonus) changes nothing: what counts is what one gets more than the other."""
    bonus = np.array([[5, 1, 2], [1, -3, 4], [2, 4, 9]])
    np.testing.assert_allclose(meta_nash(np.array(BIASED) + bonus), [1 / 4, 1 / 2, 1 / 4], atol=1e-9)


def test_two_roles() -> None:
    """[[3, -1], [-2, 1]]: rows 3p - 2(1-p) = -p + (1-p), p = 3/7; columns 3q - (1-q) = -2q + (1-q), q = 2/7."""
    row, column = role_nash([[3, -1], [-2, 1]])
    np.testing.assert_allclose(row, [3 / 7, 4 / 7], atol=1e-9)
    np.testing.assert_allclose(column, [2 / 7, 5 / 7], atol=1e-9)
    row, column = role_nash([[1, 2, 3], [0, 5, -1]])  # a saddle point in the first row and column
    np.testing.assert_allclose(row, [1, 0], atol=1e-9)
    np.testing.assert_allclose(column, [1, 0, 0], atol=1e-9)


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)).flatmap(lambda n: arrays(float, n, elements=st.integers(-3, 3)))
)
def test_no_pure_deviation_gains(payoffs: np.ndarray) -> None:
    """Whole numbers give many ties and degenerate vertices, the hard case for a linear program."""
    row, column = role_nash(payoffs)
    value = row @ payoffs @ column
    assert row.sum() == pytest.approx(1) and column.sum() == pytest.approx(1) and min(row.min(), column.min()) >= 0
    assert (payoffs @ column).max() - value <= 1e-9
    assert value - (row @ payoffs).min() <= 1e-9
    size = min(payoffs.shape)
    square = payoffs[:size, :size] - payoffs[:size, :size].T
    assert (square @ meta_nash(payoffs[:size, :size])).max() <= 1e-9


@pytest.mark.parametrize("seed", [55, 186, 215])
def test_near_ties(seed: int) -> None:
    """Moves that differ by 3e-8, less than the solver tolerates by itself; of 250 such games these went wrong."""
    rng = np.random.default_rng(seed)
    size = 4 + seed % 5
    payoffs = rng.integers(-2, 3, size=(size, size)) + rng.normal(size=(size, size)) * 3e-8
    row, column = role_nash(payoffs)
    value = row @ payoffs @ column
    assert (payoffs @ column).max() - value <= 1e-9 and value - (row @ payoffs).min() <= 1e-9


def test_large_noisy_payoffs() -> None:
    payoffs = np.random.default_rng(0).normal(size=(40, 40)) * 1e3
    square = (payoffs - payoffs.T) / 2
    assert (square @ meta_nash(payoffs)).max() <= 1e-9 * 1e3


@pytest.mark.parametrize("bad", [[], [1, 2], [[1, float("nan")]], [[1, 2]]])
def test_bad_payoffs(bad: Any) -> None:
    with pytest.raises(ValueError, match="matrix"):
        meta_nash(bad)


def test_without_scipy_the_extra_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_scipy(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("scipy")]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # put back whatever the import below takes away
    monkeypatch.setattr(builtins, "__import__", no_scipy)
    with pytest.raises(ImportError, match=r"--extra tasks"):
        League(LeagueSettings(mode="psro"), 0)
    League(LeagueSettings(mode="fsp"), 0)
