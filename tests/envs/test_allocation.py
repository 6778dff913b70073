"""Pareto optimality by hand, by enumeration and by linear programming."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.games import allocation
from legos_envs.games.allocation import by_enumeration, by_linear_program, count_allocations, pareto, utilities

BOTH = pytest.mark.parametrize("method", [by_enumeration, by_linear_program])


@BOTH
def test_opposite_tastes_by_hand(method):
    """Each owns what the other wants: swapping all of it takes both from 2 to 6."""
    values = [[3, 1], [1, 3]]
    assert method(values, [[0, 2], [2, 0]])[:2] == (False, pytest.approx(8))
    assert method(values, [[2, 0], [0, 2]])[:2] == (True, 0)
    assert method(values, [[0, 2], [2, 0]], [0.5, 0.25])[1] == pytest.approx(0.5 * 4 + 0.25 * 4)


@BOTH
def test_equal_tastes_leave_nothing_to_gain(method):
    assert method([[2, 5], [2, 5], [2, 5]], [[1, 0], [0, 2], [3, 1]])[:2] == (True, 0)


@BOTH
def test_nobody_may_lose(method):
    """Moving the goods to player 0 would add 12 in sum, at the cost of player 1."""
    assert method([[5], [1]], [[0], [3]])[:2] == (True, 0)
    assert method([[5, 1], [1, 1]], [[0, 2], [3, 0]])[:2] == (False, pytest.approx(8))  # 2 and 3 become 10 and 3


@BOTH
def test_worthless_goods_should_go_to_who_wants_them(method):
    assert method([[0, 1], [4, 1]], [[3, 1], [0, 1]])[:2] == (False, pytest.approx(12))


def test_only_divided_goods_close_this_gap():
    """Player 0 has the Ore, worth 3 to both, player 1 the Wood, worth 2 and 1. Swapping them whole costs player 0."""
    values, stock = [[3, 2], [3, 1]], [[1, 0], [0, 1]]
    whole, divided = by_enumeration(values, stock), by_linear_program(values, stock)
    assert whole[:2] == (True, 0)
    # player 0 gives 2/3 of its Ore for the Wood: it has 1 + 2 = 3 as before, player 1 has 2 where it had 1.
    assert not divided.optimal and divided.gap == pytest.approx(1)


def frontier(values, totals):
    """The Pareto frontier: what the players get in the optimal allocations in whole units, from the first's best on."""
    kept = []
    for row in sorted(set(zip(*utilities(values, totals).tolist())), reverse=True):
        if not any(all(a >= b for a, b in zip(better, row)) for better in kept):
            kept.append(row)
    return kept


def test_the_frontier_by_hand():
    assert frontier([[3, 1], [1, 3]], [2, 2]) == [(8, 0), (7, 3), (6, 6), (3, 7), (0, 8)]
    assert frontier([[1], [1]], [2]) == [(2, 0), (1, 1), (0, 2)]
    assert frontier([[1], [2], [0]], [1]) == [(1, 0, 0), (0, 2, 0)]


def test_the_number_of_allocations():
    assert count_allocations([12, 12, 12], 2) == 13**3
    for totals, players in (([2, 3], 2), ([2, 1], 3), ([3], 4)):
        got = allocation.utilities([[1] * len(totals)] * players, totals)
        assert got.shape == (players, count_allocations(totals, players))
        assert set(got.sum(axis=0).tolist()) == {sum(totals)}


INSTANCES = st.tuples(st.integers(2, 3), st.integers(1, 3)).flatmap(
    lambda shape: st.tuples(
        *[
            st.lists(
                st.lists(st.integers(0, most), min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            )
            for most in (6, 3)
        ]
    )
)


@given(INSTANCES)
def test_enumeration_agrees_with_a_plain_search(instance):
    values, stock = instance
    totals, players = [sum(units) for units in zip(*stock)], range(len(stock))

    def worth(rows):
        return [sum(v * n for v, n in zip(values[i], rows[i])) for i in players]

    now, best = worth(stock), 0
    ways = [[w for w in itertools.product(range(t + 1), repeat=len(stock)) if sum(w) == t] for t in totals]
    if count_allocations(totals, len(stock)) > 3000:
        return
    for columns in itertools.product(*ways):
        got = worth(list(zip(*columns)))
        if all(a >= b for a, b in zip(got, now)):
            best = max(best, sum(got) - sum(now))
    assert by_enumeration(values, stock)[:2] == (best == 0, best)
    assert by_enumeration(values, stock).optimal == (tuple(now) in frontier(values, totals))


@given(INSTANCES)
def test_divided_goods_never_do_worse_and_agree_where_the_whole_is_best(instance):
    values, stock = instance
    whole, divided = by_enumeration(values, stock), by_linear_program(values, stock)
    assert divided.gap >= whole.gap - 1e-6
    assert whole.optimal or not divided.optimal
    ceiling = sum(max(column) * sum(units) for column, units in zip(zip(*values), zip(*stock)))
    rich = sum(sum(v * n for v, n in zip(row, units)) for row, units in zip(values, stock)) + whole.gap
    if rich == ceiling:  # everything is with who values it most: no division beats that
        assert divided.gap == pytest.approx(whole.gap, abs=1e-6)
    fine = by_enumeration(values, [[4 * n for n in row] for row in stock]) if len(stock) == 2 else whole
    assert divided.gap >= fine.gap / (4 if len(stock) == 2 else 1) - 1e-6 >= whole.gap - 2e-6  # quarters lie between


def test_large_games_go_to_the_linear_program_and_without_scipy_to_none(monkeypatch):
    values, stock = [[1, 2, 3]] * 4, [[9, 9, 9]] * 4
    verdict = pareto(values, stock)
    assert verdict.method == "linear_program" and verdict.optimal
    assert pareto([[1, 2]] * 2, [[3, 3]] * 2).method == "enumeration"
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert pareto(values, stock) is None
    with pytest.raises(ImportError, match=r"uv sync --extra tasks"):
        by_linear_program(values, stock)
