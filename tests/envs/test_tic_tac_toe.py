"""Tic-tac-toe: the size of the game, its value, and how it reads."""

from functools import cache

import pytest

from legos_envs import exact
from legos_envs.exact.minimax import minimax, win_draw_loss
from legos_envs.games.tic_tac_toe import EMPTY, TicTacToe, TicTacToeGame, greedy

GAME = TicTacToeGame()


def infoset_of(board):
    shown = " ".join(GAME.view(board, 0).partition("Board: ")[2].split())
    return next(infoset for infoset in exact.info_sets(GAME) if infoset.view.endswith(shown))


def test_there_are_255168_games():
    @cache
    def count(state):
        if GAME.player(state) is None:
            return {1.0: (1, 0, 0), -1.0: (0, 1, 0), 0.0: (0, 0, 1)}[GAME.returns(state)[0]]
        return tuple(map(sum, zip(*(count(GAME.next(state, move)) for move in GAME.legal(state)))))

    assert count(EMPTY * 9) == (131_184, 77_904, 46_080)


def test_perfect_play_draws():
    solution = minimax(GAME)
    assert solution.value == 0
    assert len(solution.values) == 5478
    assert len(exact.info_sets(GAME)) == len(solution.optimal) == 4520
    assert win_draw_loss(GAME, exact.nash(GAME), exact.nash(GAME)) == pytest.approx((0, 1, 0))


@pytest.mark.parametrize(
    ("board", "best"),
    [
        ("XX_OO____", ("3",)),  # win rather than block
        ("X___O___X", ("2", "4", "6", "8")),  # an edge, not a corner
        ("X________", ("5",)),
        ("_________", tuple("123456789")),
    ],
)
def test_known_best_moves(board, best):
    assert minimax(GAME).optimal[infoset_of(board)] == best


@pytest.mark.parametrize(
    ("moves", "first"),
    [
        ("14253", 1),  # the top row
        ("415293", -1),  # the top row for O
        ("152374689", 0),  # a full board
        ("159284637", 1),  # a full board, won with the last mark
    ],
)
def test_rewards(moves, first):
    env = TicTacToe()
    env.reset(seed=0)
    for number, move in enumerate(moves):
        assert env.agent_selection == f"player_{number % 2}"
        env.step(f"[{move}]")
    assert env.ended
    assert env._cumulative_rewards == {"player_0": first, "player_1": -first}


def test_the_prompt():
    env = TicTacToe()
    env.reset(seed=0, options={"moves": ["5", "1"]})
    lines = env.observe("player_0")["messages"][0]["content"].splitlines()
    assert lines[0].endswith("Reply with your move as [move].")
    assert lines[1:] == ["You are X. Board: O 2 3 4 X 6 7 8 9"]
    assert env.infos["player_0"]["legal_actions"] == ("[2]", "[3]", "[4]", "[6]", "[7]", "[8]", "[9]")
    env.reset(seed=0, options={"moves": "519"})
    assert env.agent_selection == "player_1"
    assert "You are O. Board: O 2 3 4 X 6 7 8 X" in env.observe("player_1")["messages"][0]["content"]


@pytest.mark.parametrize("moves", [["5", "5"], ["0"], "15243", ["x"], 5])
def test_bad_openings_are_refused(moves):
    with pytest.raises(ValueError, match="option moves"):
        TicTacToe().reset(seed=0, options={"moves": moves})


def test_the_greedy_player_wins_and_blocks_but_can_be_forked():
    assert greedy(infoset_of("XX_OO____")) == {"3": 1.0}
    assert greedy(infoset_of("XX__O____")) == {"3": 1.0}
    assert greedy(infoset_of("_________")) == {"5": 1.0}
    assert win_draw_loss(GAME, greedy).loss < 0.05
    value, _ = exact.best_response(GAME, greedy, 0)
    assert value == 1


@pytest.mark.parametrize("opening", [-1, 5, 1.0, "2", True])
def test_bad_numbers_of_opening_moves_are_refused(opening):
    with pytest.raises(ValueError, match="random_opening must be a whole number from 0 to 4"):
        TicTacToe(random_opening=opening)
