"""CFR+: against closed forms and the graph's own NashConv; and the games it refuses."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_envs import exact
from legos_envs.exact import cfr
from legos_envs.games.bimatrix import best_equilibrium
from legos_envs.games.kuhn_poker import KuhnPokerGame
from legos_envs.games.leduc_poker import LeducPokerGame
from legos_envs.games.matrix_game import MatrixGame
from legos_envs.games.nim import NimGame


@pytest.mark.parametrize(
    ("game", "value"),
    [
        (KuhnPokerGame(), -1 / 18),
        (MatrixGame("biased_rps").game, 0.0),
        (MatrixGame(payoffs=[[2, -1], [-1, 1]]).game, 1 / 5),
        (MatrixGame("matching_pennies", rounds=3).game, 0.0),
    ],
    ids=["kuhn", "biased_rps", "two_by_two", "pennies_three_times"],
)
def test_known_values(game, value):
    found = cfr.solve(game, 1e-3)
    assert found.nash_conv <= 1e-3 and found.iterations > 0
    assert found.value == pytest.approx(value, abs=1e-3)
    assert set(found.policy) == set(exact.info_sets(game))
    assert exact.nash_conv(game, found.policy.__getitem__) == pytest.approx(found.nash_conv, abs=1e-12)
    assert exact.expected_returns(game, found.policy.__getitem__)[0] == pytest.approx(found.value, abs=1e-12)


def test_the_kings_and_jacks_of_kuhn_poker_do_what_every_equilibrium_does():
    policy = cfr.solve(KuhnPokerGame(), 1e-3).policy
    played = {infoset.view.partition("Moves: ")[2]: moves for infoset, moves in policy.items()}
    assert played["bet. Your card: K."]["call"] == pytest.approx(1, abs=0.01)
    assert played["bet. Your card: J."]["fold"] == pytest.approx(1, abs=0.01)
    assert played["check. Your card: J."]["bet"] == pytest.approx(1 / 3, abs=0.05)
    first_jack, first_king = (played[f"none. Your card: {card}."]["bet"] for card in "JK")
    assert first_king == pytest.approx(3 * first_jack, abs=0.1)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 4))
def test_random_matrices_have_the_value_that_support_enumeration_finds(seed, rows, columns):
    payoffs = np.random.default_rng(seed).normal(size=(rows, columns))
    game = MatrixGame(payoffs=payoffs, actions=[list("abcd")[:rows], list("efgh")[:columns]]).game
    x, y = best_equilibrium(payoffs, -payoffs)
    assert cfr.solve(game, 0.01).value == pytest.approx(x @ payoffs @ y, abs=0.01)


def test_exact_nash_uses_it_where_something_is_hidden_and_nothing_else_is_known():
    game = LeducPokerGame()
    assert exact.nash(game) is exact.nash(LeducPokerGame()), "kept per game"
    assert exact.nash_conv(game, exact.nash(game)) <= cfr.TOLERANCE


@dataclass(frozen=True)
class HiddenCoin:
    """Only player 0 moves; it sees nothing of a coin."""

    num_players = 2

    def initial(self):
        return [(0.75, "h"), (0.25, "t")]

    def player(self, state):
        return 0 if len(state) == 1 else None

    def legal(self, state):
        return ("h", "t")

    def next(self, state, move):
        return state + move

    def returns(self, state):
        won = 1.0 if state[0] == state[1] else -1.0
        return won, -won

    def view(self, state, player):
        return "Guess."


def test_a_player_that_never_moves():
    found = cfr.solve(HiddenCoin(), 1e-3)
    assert found.value == pytest.approx(0.5, abs=1e-3)
    ((infoset, played),) = found.policy.items()
    assert infoset.player == 0 and played["h"] > 0.99


def test_other_games_are_refused():
    with pytest.raises(ValueError, match="needs a zero-sum game for 2 players"):
        cfr.solve(MatrixGame("stag_hunt").game)
    with pytest.raises(ValueError, match="different pasts merge"):
        cfr.solve(NimGame())
    with pytest.raises(ValueError, match="did not reach a NashConv of 1e-09 in 20 iterations"):
        cfr.solve(KuhnPokerGame(), 1e-9, iterations=20)
