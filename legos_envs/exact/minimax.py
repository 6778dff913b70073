"""Two-player games of perfect information: backward induction, and the quality of a policy measured by it."""

from __future__ import annotations

from typing import NamedTuple

from legos_envs.exact.graph import cached, graph_of, uniform
from legos_envs.game import ExactPolicy, Game, InfoSet, State

TIE = 1e-9


class Solution(NamedTuple):
    """Perfect play.

    `value` is player 0's expected return over the deals, `values` its return from each state, and `optimal` the moves
    that keep the value, in the order of the legal moves.
    """

    value: float
    values: dict[State, float]
    optimal: dict[InfoSet, tuple[str, ...]]


class Results(NamedTuple):
    """Probabilities of a positive, a zero and a negative return; they sum to 1."""

    win: float
    draw: float
    loss: float


@cached
def minimax(game: Game) -> Solution:
    """Solves a two-player zero-sum game of perfect information by backward induction. Cached per game: do not mutate.

    Raises:
        ValueError: the game has hidden information, is not zero-sum, or does not have two players.
    """
    graph = graph_of(game)
    zero_sum = all(abs(sum(returns)) < TIE for returns in graph.returns)
    if not (graph.num_players == 2 and zero_sum and graph.perfect_information):
        raise ValueError(
            f"minimax needs a zero-sum game of perfect information for 2 players; this one has {graph.num_players} "
            f"players, zero-sum: {zero_sum}, perfect information: {graph.perfect_information}"
        )
    values = [0.0] * len(graph.states)
    optimal: dict[InfoSet, tuple[str, ...]] = {}
    for node in range(len(values) - 1, -1, -1):
        at = graph.where[node]
        if at < 0:
            values[node] = graph.returns[node][0]
            continue
        infoset = graph.infosets[at]
        after = [values[child] for child in graph.children[node]]
        values[node] = best = max(after) if infoset.player == 0 else min(after)
        optimal[infoset] = tuple([m for m, value in zip(infoset.legal, after) if abs(value - best) < TIE])
    value = sum(chance * values[node] for chance, node in graph.starts)
    return Solution(value, dict(zip(graph.states, values)), {infoset: optimal[infoset] for infoset in graph.infosets})


def minimax_policy(game: Game) -> ExactPolicy:
    """Perfect play that chooses uniformly among the optimal moves."""
    optimal = minimax(game).optimal
    return lambda infoset: dict.fromkeys(optimal[infoset], 1 / len(optimal[infoset]))


def optimal_move_probability(game: Game, policy: ExactPolicy) -> float:
    """The probability that the policy puts on optimal moves.

    This is the unweighted mean over the information sets where some move is better than another: positions where all
    moves are equally good would inflate it, and weighting by reach would let a policy hide its mistakes.

    Raises:
        ValueError: as `minimax`; or no position of the game offers a choice that matters.
    """
    optimal = minimax(game).optimal
    graph = graph_of(game)
    shares = [
        sum(p for move, p in zip(infoset.legal, played) if move in optimal[infoset])
        for infoset, played in zip(graph.infosets, graph.probabilities(policy))
        if len(optimal[infoset]) < len(infoset.legal)
    ]
    if not shares:
        raise ValueError("all moves of this game are equally good: there is no optimal move to measure")
    return sum(shares) / len(shares)


def win_draw_loss(game: Game, policy: ExactPolicy, opponent: ExactPolicy = uniform) -> Results:
    """The exact probabilities of results of `policy` against `opponent`, averaged over the seats.

    With more than two players `opponent` plays all other seats. Works for any game that fits into memory.
    """
    graph = graph_of(game)
    mine, theirs = graph.probabilities(policy), graph.probabilities(opponent)
    totals = [0.0, 0.0, 0.0]
    for seat in range(graph.num_players):
        reached = graph.reach([mine if player == seat else theirs for player in range(graph.num_players)])
        for mass, returns in zip(reached, graph.returns):
            if returns:
                totals[0 if returns[seat] > TIE else 2 if returns[seat] < -TIE else 1] += mass
    return Results(*(total / graph.num_players for total in totals))


def no_loss_rate(game: Game, policy: ExactPolicy, opponent: ExactPolicy = uniform) -> float:
    """The exact probability that `policy` wins or draws against `opponent`, averaged over the seats."""
    results = win_draw_loss(game, policy, opponent)
    return results.win + results.draw
