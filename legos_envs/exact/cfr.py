"""CFR+ (Tammelin, 2014): equilibria of two-player zero-sum games with hidden information, in numpy.

Strategies are in sequence form (Koller, Megiddo and von Stengel, 1996): one weight per information set and move, the
probability that its owner plays all of its own moves up to that point. The payoff is bilinear in the two weight
vectors, so an iteration takes two sparse products and a sweep over each player's own tree, and averaging strategies
means averaging vectors. Not supported: sampling, pruning, and states that merge different pasts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from legos_envs.exact.graph import GameGraph, cached, graph_of
from legos_envs.game import ExactPolicy, Game, InfoSet

TOLERANCE = 1e-3
"""The NashConv at which CFR+ stops; values of its equilibria are off by at most this much."""
LOOK_EVERY = 10


class Equilibrium(NamedTuple):
    """The result of `solve`: the policy, its value to player 0, its NashConv, and the number of iterations."""

    policy: dict[InfoSet, dict[str, float]]
    value: float
    nash_conv: float
    iterations: int


class Tree:
    """A player's own decisions, as arrays: sequences (information set and move) by depth, 0 being no move at all.

    Attributes:
        infosets: indices into `graph.infosets`, shallow ones first.
        first: (len(infosets),) the first sequence of each; its moves are consecutive.
        counts: (len(infosets),) number of moves of each.
        parent: (len(infosets),) the player's last sequence before each.
        size: the number of sequences.

    Raises:
        ValueError: the player lacks perfect recall, or states merge different pasts of its own.
    """

    def __init__(self, graph: GameGraph, player: int):
        past = graph.own_past(player)
        order = graph.decision_order(player)[::-1]
        before = {at: set[tuple[int, int]]().union(*(past[node] for node in graph.members[at])) for at in order}
        if any(len(pasts) != 1 for pasts in (*before.values(), *past)):
            raise ValueError("CFR+ needs a game whose states keep every player's past: here different pasts merge")
        depth = {-1: -1}
        for at in order:
            ((earlier, _),) = before[at]
            depth[at] = depth[earlier] + 1
        self.infosets = sorted(order, key=depth.__getitem__)
        self.counts = np.array([len(graph.infosets[at].legal) for at in self.infosets], int)
        self.first = np.cumsum(self.counts) - self.counts + 1
        self.size = int(self.counts.sum()) + 1
        start = {at: int(first) for at, first in zip(self.infosets, self.first)} | {-1: 1}
        self.parent = np.array([start[earlier] + move for at in self.infosets for earlier, move in before[at]], int)
        self.last = np.array([start[earlier] + move for ((earlier, move),) in past], int)
        depths = np.array([depth[at] for at in self.infosets], int)
        cuts = np.searchsorted(depths, np.arange(depths.max(initial=-1) + 2))
        ends = np.append(self.first, self.size)
        self.levels = [(slice(a, b), slice(ends[a], ends[b])) for a, b in pairwise(cuts)]

    def match(self, regrets: np.ndarray) -> np.ndarray:
        """Regret matching: (size,) probabilities in proportion to nonnegative regrets; uniform where all are 0."""
        totals = np.repeat(np.add.reduceat(regrets[1:], self.first - 1), self.counts)
        shares = np.repeat(1 / self.counts, self.counts)
        np.divide(regrets[1:], totals, out=shares, where=totals > 0)
        return np.concatenate([[1.0], shares])

    def weights(self, shares: np.ndarray) -> np.ndarray:
        """The sequence form of a strategy given by its probabilities in each information set."""
        weights = shares.copy()
        for sets, moves in self.levels:
            weights[moves] *= np.repeat(weights[self.parent[sets]], self.counts[sets])
        return weights

    def regrets(self, gradient: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Each move's counterfactual gain over the strategy's mixture."""
        worth, regrets = gradient.copy(), np.zeros(self.size)
        for sets, moves in reversed(self.levels):
            mixed = np.add.reduceat(shares[moves] * worth[moves], self.first[sets] - moves.start)
            regrets[moves] = worth[moves] - np.repeat(mixed, self.counts[sets])
            worth += np.bincount(self.parent[sets], mixed, self.size)
        return regrets

    def best(self, gradient: np.ndarray) -> float:
        """The value of the best response."""
        worth = gradient.copy()
        for sets, moves in reversed(self.levels):
            most = np.maximum.reduceat(worth[moves], self.first[sets] - moves.start)
            worth += np.bincount(self.parent[sets], most, self.size)
        return float(worth[0])


@cached
def equilibrium(game: Game) -> ExactPolicy:
    """An equilibrium up to a NashConv of `TOLERANCE`; cached per game.

    Raises:
        ValueError: as `solve`.
    """
    return solve(game).policy.__getitem__


def solve(game: Game, tolerance: float = TOLERANCE, iterations: int = 20_000) -> Equilibrium:
    """Runs CFR+ (alternating updates, linear averaging) until the NashConv of the average is at most `tolerance`.

    Args:
        game: two players, zero-sum, perfect recall; chance only at the start.
        tolerance: in units of the game's payoffs, greater than 0.
        iterations: maximum number of iterations.

    Raises:
        ValueError: the game is of another kind, or `tolerance` is not reached within `iterations`.
    """
    graph = graph_of(game)
    if graph.num_players != 2 or any(abs(sum(returns)) > 1e-9 for returns in graph.returns):
        raise ValueError(f"CFR+ needs a zero-sum game for 2 players; this one has {graph.num_players} or another sum")
    trees = Tree(graph, 0), Tree(graph, 1)
    payoffs = _payoffs(graph, trees)
    regrets = [np.zeros(tree.size) for tree in trees]
    shares = [tree.match(kept_regrets) for tree, kept_regrets in zip(trees, regrets)]
    weights = [tree.weights(share) for tree, share in zip(trees, shares)]
    averages = [np.zeros(tree.size) for tree in trees]
    for number in range(1, iterations + 1):
        for player, tree in enumerate(trees):
            gradient = _gradient(payoffs, player, weights[1 - player], tree.size)
            regrets[player] = np.maximum(regrets[player] + tree.regrets(gradient, shares[player]), 0.0)
            shares[player] = tree.match(regrets[player])
            weights[player] = tree.weights(shares[player])
            averages[player] += number * weights[player]
        if number % LOOK_EVERY == 0:
            mixed = [average / average[0] for average in averages]
            gradients = [_gradient(payoffs, i, mixed[1 - i], tree.size) for i, tree in enumerate(trees)]
            gap = sum(tree.best(gradient) for tree, gradient in zip(trees, gradients))
            if gap <= tolerance:
                policy: dict[InfoSet, dict[str, float]] = {}
                for tree, average in zip(trees, averages):
                    policy |= _policy(graph, tree, tree.match(average))
                return Equilibrium(policy, float(mixed[0] @ gradients[0]), gap, number)
    raise ValueError(f"CFR+ did not reach a NashConv of {tolerance:g} in {iterations} iterations")


def _payoffs(graph: GameGraph, trees: tuple[Tree, Tree]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The payoff matrix of player 0 over the two players' sequences, chance included: rows, columns, values."""
    chances = graph.reach([None, None])
    cells: dict[tuple[int, int], float] = {}
    for node, returns in enumerate(graph.returns):
        if returns:
            cell = int(trees[0].last[node]), int(trees[1].last[node])
            cells[cell] = cells.get(cell, 0.0) + chances[node] * returns[0]
    rows, columns = np.array(list(cells), int).T
    return rows, columns, np.array(list(cells.values()))


def _gradient(
    payoffs: tuple[np.ndarray, np.ndarray, np.ndarray], player: int, other: np.ndarray, size: int
) -> np.ndarray:
    """The value of each sequence of a player against the other's weights, where the game ends with it."""
    rows, columns, values = payoffs
    if player == 0:
        return np.bincount(rows, values * other[columns], size)
    return np.bincount(columns, -values * other[rows], size)


def _policy(graph: GameGraph, tree: Tree, shares: np.ndarray) -> dict[InfoSet, dict[str, float]]:
    result = {}
    for at, first in zip(tree.infosets, tree.first):
        infoset = graph.infosets[at]
        played = shares[first : first + len(infoset.legal)]
        result[infoset] = dict(zip(infoset.legal, (played / played.sum()).tolist()))
    return result
