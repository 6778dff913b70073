"""Nim: who wins is known from the nim-sum."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs import exact
from legos_envs.exact.minimax import minimax, win_draw_loss
from legos_envs.games.nim import Nim, NimGame


def nim_sum(heaps, max_take=None):
    """Zero exactly where the player to move loses normal play: the XOR of the heaps' Grundy values."""
    total = 0
    for heap in heaps:
        total ^= heap if max_take is None else heap % (max_take + 1)
    return total


@pytest.mark.parametrize(
    ("starts", "max_take"),
    [(((12,),), 3), (((11,),), 4), (((9,),), None), (((3, 4, 5),), None), (((2, 4, 6, 1),), 2), (((7, 8),), 3)],
)
def test_the_player_to_move_loses_exactly_where_the_nim_sum_is_zero(starts, max_take):
    solution = minimax(NimGame(starts, max_take))
    for (heaps, player), value in solution.values.items():
        mover_wins = value == (1 if player == 0 else -1)
        assert mover_wins == (nim_sum(heaps, max_take) != 0), heaps


def test_optimal_moves_leave_a_multiple_of_four():
    optimal = minimax(NimGame()).optimal
    for heap in (1, 2, 3, 5, 6, 7, 9, 10, 11):
        moves = [moves for infoset, moves in optimal.items() if infoset.view == f"Heap: {heap}."]
        assert moves and all(found == (str(heap % 4),) for found in moves)
    (lost,) = {moves for infoset, moves in optimal.items() if infoset.view == "Heap: 8."}
    assert lost == ("1", "2", "3")


@given(heap=st.integers(1, 30), most=st.integers(1, 5))
def test_misere_nim_is_lost_one_past_the_multiples(heap, most):
    value = minimax(NimGame(((heap,),), most, misere=True)).value
    assert value == (-1 if heap % (most + 1) == 1 else 1)


def test_values_of_the_default_game():
    """Heaps 8 and 12 of 5..12 are lost for the first player: six of eight are won."""
    assert minimax(NimGame()).value == pytest.approx((6 - 2) / 8)
    results = win_draw_loss(NimGame(), exact.nash(NimGame()), exact.nash(NimGame()))
    assert results == pytest.approx((0.5, 0, 0.5))


def test_heaps_are_drawn_uniformly():
    env, sizes = Nim(), Counter()
    for seed in range(1600):
        env.reset(seed=seed)
        sizes[env.observe("player_0")["messages"][0]["content"].partition("Heap: ")[2].partition(".")[0]] += 1
    assert {int(size) for size in sizes} == set(range(5, 13))
    assert all(abs(count - 200) < 67 for count in sizes.values())


def test_taking_the_last_one_wins_and_in_misere_loses():
    for misere, won in ((False, 1.0), (True, -1.0)):
        env = Nim(misere=misere)
        env.reset(seed=0, options={"heap": 5})
        assert ("loses" if misere else "wins") in env.observe("player_0")["messages"][0]["content"]
        for action in ("[3]", "[1]", "[1]"):
            env.step(action)
        assert env._cumulative_rewards == {"player_0": won, "player_1": -won}


def test_no_more_than_the_limit_or_the_heap_may_be_taken():
    env = Nim()
    env.reset(seed=0, options={"heap": 5})
    assert env.infos["player_0"]["legal_actions"] == ("[1]", "[2]", "[3]")
    env.step("[3]")
    assert env.infos["player_1"]["legal_actions"] == ("[1]", "[2]")
    env.step("[3]")
    assert not env.ended and "not legal" in env.observe("player_1")["messages"][0]["content"]


def test_fixed_heaps():
    assert Nim(heaps=9).game == Nim(heaps=(9,)).game == NimGame(((9,),))
    env = Nim(heaps=(1, 2), max_take=None)
    env.reset(seed=0)
    assert env.infos["player_0"]["legal_actions"] == ("[A1]", "[B1]", "[B2]")
    env.step("[b1]")
    assert "Heaps: A 1 B 1." in env.observe("player_1")["messages"][0]["content"]
    env.reset(seed=0, options={"heap": [1, 1]})
    assert "Heaps: A 1 B 1." in env.observe("player_0")["messages"][0]["content"]


@pytest.mark.parametrize(
    "wrong",
    [{"heaps": ()}, {"heaps": (0,)}, {"heaps": (2.5,)}, {"heap_range": (6, 5)}, {"heap_range": (5,)}, {"max_take": 0}],
)
def test_bad_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"{next(iter(wrong))} must be"):
        Nim(**wrong)


@pytest.mark.parametrize("heap", [0, 13, "7", [5, 5], 5.0])
def test_bad_heap_options_are_refused(heap):
    with pytest.raises(ValueError, match="option heap must be"):
        Nim().reset(seed=0, options={"heap": heap})
