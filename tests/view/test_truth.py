"""What a move cost, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import legos_envs
from legos_envs import exact
from legos_envs.play import Runner
from legos_train.observe.viewer import LogLine, exact_values, rollout_line
from legos_train.observe.viewer.compact import compact
from legos_train.observe.viewer.truth import solve


def scripted(env: Any, moves: list[str], seed: int = 0) -> legos_envs.Episode:
    runner = Runner(env, seed)
    for move in moves:
        runner.answer(runner.pending()[0], move)
    assert runner.done
    return runner.episode


def test_a_blunder_in_tic_tac_toe_costs_the_game() -> None:
    env: Any = legos_envs.make("TicTacToe-v0")
    # X in the middle, O on an edge (a mistake), X in the wrong corner of no threat, O blocks badly, X wins
    episode = scripted(env, ["[5]", "[2]", "[1]", "[3]", "[9]"])
    found = exact_values(env)(episode)
    assert found["player_0"] == [(0, 0), (1, 1), (1, 1)]
    assert found["player_1"] == [(0, -1), (-1, -1)]
    line = rollout_line(episode, step=0, policy_version=0, exact=found)
    row, _ = compact(LogLine(1, line))
    assert row["seats"][1]["worst"] == {"turn": 0, "by": "exact", "value": -1.0}


def test_values_of_kuhn_poker() -> None:
    """The second player's equilibrium is unique (Kuhn, 1950): its king calls a bet and its jack folds."""
    env: Any = legos_envs.make("KuhnPoker-v0")
    table = solve(env.game)
    faced = {
        card: next(i for i in table if i.player == 1 and f"card: {card}" in i.view and "Moves: bet" in i.view)
        for card in "JQK"
    }
    value, moves = table[faced["K"]]
    assert value == moves["call"] == pytest.approx(2) and moves["fold"] == pytest.approx(-1)
    value, moves = table[faced["J"]]
    assert value == moves["fold"] == pytest.approx(-1) and moves["call"] == pytest.approx(-2)
    value, moves = table[faced["Q"]]  # indifferent, for the first player bets its jack a third as often as its king
    assert value == moves["call"] == moves["fold"] or abs(moves["call"] - moves["fold"]) < 1e-2
    opening = sum(table[i][0] / 3 for i in table if i.player == 0 and "Moves: none" in i.view)
    assert opening == pytest.approx(-1 / 18, abs=1e-3)


def test_no_move_gains_on_an_equilibrium_and_its_own_moves_cost_nothing() -> None:
    game = legos_envs.make("KuhnPoker-v0").game  # type: ignore[attr-defined]
    policy = exact.nash(game)
    for infoset, (value, moves) in solve(game).items():
        assert all(q <= value + 1e-9 for q in moves.values())
        played = {move for move, p in policy(infoset).items() if p > 0.01}
        assert all(moves[move] == pytest.approx(value, abs=1e-2) for move in played)


def test_illegal_moves_and_unknown_prompts_have_no_value() -> None:
    env: Any = legos_envs.make("KuhnPoker-v0")
    episode = scripted(env, ["[raise]", "[check]", "[bet]", "no", "[fold]"])
    found = exact_values(env)(episode)
    assert found["player_0"][0] is None and found["player_0"][-1] is None
    assert found["player_1"][0] is not None


def test_a_game_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        exact_values(legos_envs.make("ConnectFour-v0"))  # type: ignore[arg-type]
