"""Solvers: against closed forms, brute force and sampling; and the errors they owe."""

import itertools
import random
import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_envs import exact
from legos_envs.exact.graph import GameGraph
from legos_envs.exact.minimax import minimax, win_draw_loss
from legos_envs.game import InfoSet, info_set
from legos_envs.games.kuhn_poker import KuhnPokerGame, kuhn_nash
from legos_envs.games.matrix_game import MatrixGame
from legos_envs.games.nim import NimGame
from legos_envs.games.tic_tac_toe import TicTacToeGame


def random_policy(seed):
    """A fixed random mixture at every information set."""

    def play(infoset):
        weights = [random.Random(f"{seed}/{infoset}/{move}").random() + 0.01 for move in infoset.legal]
        return {move: weight / sum(weights) for move, weight in zip(infoset.legal, weights)}

    return play


def deterministic(choice):
    return lambda infoset: {choice[infoset]: 1.0}


def combined(policies):
    """A policy for each player as one policy."""
    return lambda infoset: policies[infoset.player](infoset)


@dataclass(frozen=True)
class ThreeSealed:
    """Three players choose unseen; the returns are arbitrary but fixed."""

    num_players = 3

    def initial(self):
        return [(1.0, "")]

    def player(self, state):
        return len(state) if len(state) < 3 else None

    def legal(self, state):
        return ("a", "b", "c")

    def next(self, state, move):
        return state + move

    def returns(self, state):
        return tuple(random.Random(f"{state}{player}").random() for player in range(3))

    def rules(self, player):
        return "A test."

    def view(self, state, player):
        return f"You are player {player}."


@pytest.mark.parametrize(
    "game",
    [
        KuhnPokerGame(),
        MatrixGame("biased_rps").game,
        MatrixGame("stag_hunt", rounds=2).game,
        NimGame(((5,),)),
        ThreeSealed(),
    ],
    ids=["kuhn", "biased_rps", "stag_hunt_twice", "nim", "three_sealed"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_best_response_is_the_best_of_all_pure_strategies(game, seed):
    policy, players = random_policy(seed), range(game.num_players)
    for player in players:
        own = [infoset for infoset in exact.info_sets(game) if infoset.player == player]
        values = []
        for moves in itertools.product(*(infoset.legal for infoset in own)):
            mine = deterministic(dict(zip(own, moves)))
            values.append(
                exact.expected_returns(game, combined({i: mine if i == player else policy for i in players}))[player]
            )
        value, moves = exact.best_response(game, policy, player)
        assert value == pytest.approx(max(values), abs=1e-12)
        mine = deterministic(moves)
        played = exact.expected_returns(game, combined({i: mine if i == player else policy for i in players}))
        assert played[player] == pytest.approx(value, abs=1e-12)


def test_best_response_does_not_look_at_hidden_cards():
    """One move for each own card: with the queen, call a bet (even chances) and bet after a check (a king may fold)."""
    value, moves = exact.best_response(KuhnPokerGame(), exact.uniform, 1)
    assert value == pytest.approx(5 / 12)  # a player who saw the other's card would get more
    assert {infoset.view: move for infoset, move in moves.items()} == {
        "You are player 1. Moves: check. Your card: J.": "bet",
        "You are player 1. Moves: check. Your card: Q.": "bet",
        "You are player 1. Moves: check. Your card: K.": "bet",
        "You are player 1. Moves: bet. Your card: J.": "fold",
        "You are player 1. Moves: bet. Your card: Q.": "call",
        "You are player 1. Moves: bet. Your card: K.": "call",
    }


@dataclass(frozen=True)
class DeepAndShallow:
    """Player 0 decides in one information set at two depths: chance (hidden) lets player 1 act first or not."""

    num_players = 2

    def initial(self):
        return [(0.75, "early"), (0.25, "late")]

    def player(self, state):
        return {"early": 0, "late": 1, "late go": 0}.get(state)

    def legal(self, state):
        return ("go", "stop") if state == "late" else ("left", "right")

    def next(self, state, move):
        return f"{state} {move}"

    def returns(self, state):
        value = {"early left": 1, "early right": 0, "late go left": 0, "late go right": 4, "late stop": 0}[state]
        return float(value), float(-value)

    def rules(self, player):
        return "A test."

    def view(self, state, player):
        return f"You are player {player}."


@pytest.mark.parametrize(("go", "move", "value"), [(1.0, "right", 1.0), (0.5, "left", 0.75), (0.0, "left", 0.75)])
def test_counterfactual_weights_in_a_set_of_unequal_depth(go, move, value):
    def policy(infoset):
        return {"go": go, "stop": 1 - go} if infoset.player == 1 else exact.uniform(infoset)

    assert exact.best_response(DeepAndShallow(), policy, 0) == (
        value,
        {InfoSet(0, "You are player 0.", ("left", "right")): move},
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_nash_conv_is_never_negative_and_zero_for_a_response_to_itself(seed):
    game = KuhnPokerGame()
    policy = random_policy(seed)
    conv = exact.nash_conv(game, policy)
    assert conv >= 0
    returns = exact.expected_returns(game, policy)
    assert sum(returns) == pytest.approx(0, abs=1e-12)
    best = [exact.best_response(game, policy, player)[0] for player in range(2)]
    assert conv == pytest.approx(sum(best) - sum(returns), abs=1e-12)


def test_nash_conv_of_tic_tac_toe_agrees_with_minimax():
    game = TicTacToeGame()
    assert exact.nash_conv(game, exact.nash(game)) == pytest.approx(0, abs=1e-12)
    assert exact.best_response(game, exact.nash(game), 0)[0] == pytest.approx(0, abs=1e-12)
    first, _ = exact.best_response(game, exact.uniform, 0)
    second, _ = exact.best_response(game, exact.uniform, 1)
    assert exact.nash_conv(game, exact.uniform) == pytest.approx(first + second)
    assert 0.99 < first < 1 and 0.9 < second < first


def test_a_new_policy_on_tic_tac_toe_is_evaluated_quickly():
    game = TicTacToeGame()
    exact.nash_conv(game, exact.uniform)
    times = []
    for _ in range(3):
        start = time.process_time()
        exact.nash_conv(TicTacToeGame(), exact.nash(game))  # an equal game shares the graph
        times.append(time.process_time() - start)
    assert min(times) < 0.3


def test_uniform_against_uniform_agrees_with_sampling():
    game, rng, losses = TicTacToeGame(), random.Random(1), 0
    exactly = exact.no_loss_rate(game, exact.uniform)
    assert exactly == pytest.approx(0.5635, abs=1e-4)
    count = 4000
    for number in range(count):
        state = game.initial()[0][1]
        while game.player(state) is not None:
            state = game.next(state, rng.choice(game.legal(state)))
        losses += game.returns(state)[number % 2] < 0
    assert abs(1 - losses / count - exactly) < 4 * (0.25 / count) ** 0.5


def test_win_draw_loss_averages_over_both_seats():
    game = TicTacToeGame()
    results = win_draw_loss(game, exact.nash(game))
    assert results.loss == 0 and sum(results) == pytest.approx(1)
    mirrored = win_draw_loss(game, exact.uniform, exact.nash(game))
    assert (mirrored.loss, mirrored.draw, mirrored.win) == pytest.approx(results)
    assert exact.no_loss_rate(game, exact.nash(game)) == pytest.approx(1)
    first, second = (win_draw_loss(game, exact.uniform, exact.nash(game), seat) for seat in (0, 1))
    assert first.win == second.win == 0 and first.loss < second.loss, "who moves first loses less"
    assert (first.loss + second.loss) / 2 == pytest.approx(mirrored.loss)
    assert exact.no_loss_rate(game, exact.uniform, exact.nash(game), 1) == pytest.approx(second.draw)


def test_optimal_move_probability():
    game = NimGame()
    assert exact.optimal_move_probability(game, exact.nash(game)) == pytest.approx(1)
    # Positions with a choice that matters: heap 2 (1 move of 2) and 3, 5, 6, 7, 9, 10, 11 (1 of 3), for both players.
    assert exact.optimal_move_probability(game, exact.uniform) == pytest.approx((1 / 2 + 7 / 3) / 8)
    assert exact.optimal_move_probability(game, lambda infoset: {infoset.legal[-1]: 1.0}) == pytest.approx(
        4 / 8
    )  # at 2, 3, 7 and 11


def test_information_sets_come_in_a_fixed_order():
    views = [infoset.view for infoset in exact.info_sets(KuhnPokerGame())]
    assert len(views) == len(set(views)) == 12
    assert views[:3] == [f"You are player 0. Moves: none. Your card: {card}." for card in "JQK"]
    assert views == [infoset.view for infoset in GameGraph(KuhnPokerGame()).infosets]


def test_info_set_at_the_end_is_refused():
    with pytest.raises(ValueError, match="the game is over"):
        info_set(NimGame(), ((0,), 1))


@pytest.mark.parametrize(
    "played",
    [{}, {"check": 0.5, "bet": 0.4}, {"check": 1.5, "bet": -0.5}, {"check": 1.0, "raise": 0.0}, {"bet": float("nan")}],
)
def test_malformed_policies_are_refused(played):
    def policy(infoset):
        return played if "check" in infoset.legal else exact.uniform(infoset)

    with pytest.raises(ValueError, match="must give probabilities that sum to 1 over 'check', 'bet'"):
        exact.nash_conv(KuhnPokerGame(), policy)


def test_float32_rounding_is_put_right():
    def rounded(infoset):
        return {move: p * (1 + 3e-7) for move, p in kuhn_nash(infoset).items()}

    assert exact.nash_conv(KuhnPokerGame(), rounded) == pytest.approx(0, abs=1e-9)


def test_minimax_refuses_hidden_information_and_general_sums():
    with pytest.raises(ValueError, match="perfect information: False"):
        minimax(KuhnPokerGame())
    with pytest.raises(ValueError, match="zero-sum: False"):
        minimax(MatrixGame("stag_hunt").game)


def test_no_choice_that_matters_is_an_error():
    with pytest.raises(ValueError, match="no optimal move to measure"):
        exact.optimal_move_probability(NimGame(((4,),), max_take=1), exact.uniform)


@dataclass(frozen=True)
class Forgetful(DeepAndShallow):
    """Player 0 moves twice and cannot tell what it did."""

    def initial(self):
        return [(1.0, "")]

    def player(self, state):
        return 0 if state.count(" ") < 2 else None

    def legal(self, state):
        return ("left", "right")

    def returns(self, state):
        return 0.0, 0.0

    def view(self, state, player):
        return f"Move {state.count(' ')}."


@dataclass(frozen=True)
class AbsentMinded(Forgetful):
    """Player 0 cannot even tell whether it has moved."""

    def view(self, state, player):
        return "Move."


@pytest.mark.parametrize("game", [Forgetful(), AbsentMinded()])
def test_imperfect_recall_is_refused(game):
    with pytest.raises(ValueError, match="has forgotten its own past"):
        exact.best_response(game, exact.uniform, 0)


@dataclass(frozen=True)
class Looping(DeepAndShallow):
    def next(self, state, move):
        return "late go" if state == "late" else "late"

    def legal(self, state):
        return ("on",)


@dataclass(frozen=True)
class UnequalMoves(DeepAndShallow):
    def legal(self, state):
        return ("left",) if state == "early" else super().legal(state)


def test_bad_games_are_refused():
    with pytest.raises(ValueError, match="return to a state"):
        exact.info_sets(Looping())
    with pytest.raises(ValueError, match="equal views must have equal moves"):
        exact.info_sets(UnequalMoves())
    with pytest.raises(ValueError, match="player must be from 0 to 1; got 2"):
        exact.best_response(KuhnPokerGame(), exact.uniform, 2)
