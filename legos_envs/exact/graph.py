"""A `Game` as a graph, so that a single pass over it evaluates any policy.

Equal states are one node (transpositions), so tic-tac-toe has 5,478 nodes, not 549,946. Building the graph is the slow
part; it is cached per game, and a new policy costs a few passes over lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from legos_envs.game import MAX_STATES, ExactPolicy, Game, InfoSet, State, info_set

T = TypeVar("T")
ROUNDING = 1e-4


def uniform(infoset: InfoSet) -> dict[str, float]:
    """The policy that plays every legal move with equal probability."""
    return dict.fromkeys(infoset.legal, 1 / len(infoset.legal))


class GameGraph:
    """The reachable states of a game, parents before children.

    Attributes:
        states: every reachable state, in topological order; this order numbers the nodes.
        starts: (probability, node) of each deal.
        infosets: every information set, in the order of its first state.
        where: per node, the index of its information set; -1 if the game is over.
        children: per node, the nodes after each legal move.
        returns: per node, the players' returns; empty before the end.

    Raises:
        ValueError: states repeat along a path, one view has two lists of moves, or the game is too large.
    """

    def __init__(self, game: Game):
        self.num_players = game.num_players
        result, deals = _discover(game)
        self.states, after = _sorted(result)
        number = {state: node for node, state in enumerate(self.states)}
        self.starts = [(chance, number[state]) for chance, state in deals]
        self.children = [tuple([number[child] for child in after[state]]) for state in self.states]
        self.infosets: list[InfoSet] = []
        self.where: list[int] = []
        self.returns: list[tuple[float, ...]] = []
        index: dict[tuple[int, str], int] = {}
        for state in self.states:
            if game.player(state) is None:
                self.where.append(-1)
                self.returns.append(tuple([float(value) for value in game.returns(state)]))
                continue
            infoset = info_set(game, state)
            at = index.setdefault(infoset[:2], len(self.infosets))
            if at == len(self.infosets):
                self.infosets.append(infoset)
            elif self.infosets[at].legal != infoset.legal:
                raise ValueError(
                    f"player {infoset.player} has the view {infoset.view!r} with the moves {infoset.legal} and with "
                    f"{self.infosets[at].legal}: states with equal views must have equal moves"
                )
            self.where.append(at)
            self.returns.append(())
        self.members: list[list[int]] = [[] for _ in self.infosets]
        for node, at in enumerate(self.where):
            if at >= 0:
                self.members[at].append(node)
        self._orders: dict[int, list[int]] = {}

    @property
    def perfect_information(self) -> bool:
        """Whether every information set is a single state."""
        return len(self.infosets) == sum(at >= 0 for at in self.where)

    def player(self, node: int) -> int | None:
        """The player to move at a node."""
        at = self.where[node]
        return None if at < 0 else self.infosets[at].player

    def probabilities(self, policy: ExactPolicy) -> list[list[float]]:
        """A policy's probabilities, per information set in the order of its legal moves.

        Sums may be off by 1e-4 (float32 models) and are normalised.

        Raises:
            ValueError: an illegal move, a negative probability, or a sum that is not 1.
        """
        table = []
        for infoset in self.infosets:
            played = policy(infoset)
            weights = [float(played.get(move, 0.0)) for move in infoset.legal]
            total = sum(weights)
            if not abs(total - 1) <= ROUNDING or min(weights) < 0 or not played.keys() <= set(infoset.legal):
                raise ValueError(
                    f"the policy plays {dict(played)!r} as player {infoset.player} at {infoset.view!r}; "
                    f"it must give probabilities that sum to 1 over {', '.join(map(repr, infoset.legal))}"
                )
            table.append([weight / total for weight in weights])
        return table

    def reach(self, tables: Sequence[Sequence[Sequence[float]] | None]) -> list[float]:
        """The probability of reaching each node when player i plays `tables[i]`.

        None leaves a player's own probabilities out of the product (counterfactual reach).
        """
        reached = [0.0] * len(self.states)
        for chance, node in self.starts:
            reached[node] += chance
        by_infoset = [
            table[at] if (table := tables[infoset.player]) is not None else [1.0] * len(infoset.legal)
            for at, infoset in enumerate(self.infosets)
        ]
        for node, at in enumerate(self.where):
            mass = reached[node]
            if at >= 0 and mass:
                for child, probability in zip(self.children[node], by_infoset[at]):
                    reached[child] += mass * probability
        return reached

    def reach_without(self, player: int, table: Sequence[Sequence[float]]) -> list[float]:
        """The counterfactual reach of a player: that of `reach` if all others play a table."""
        return self.reach([None if other == player else table for other in range(self.num_players)])

    def values(self, table: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
        """Per node, each player's expected return when all play according to a table of `probabilities`."""
        values: list[tuple[float, ...]] = list(self.returns)
        for node in reversed(range(len(values))):  # parents come before children
            if (at := self.where[node]) >= 0:
                after = [values[child] for child in self.children[node]]
                values[node] = tuple(
                    sum(p * value[player] for p, value in zip(table[at], after)) for player in range(self.num_players)
                )
        return values

    def move_values(self, at: int, weights: Sequence[float], values: Sequence[tuple[float, ...]]) -> list[float]:
        """The value of each move of an information set to its player: a weighted sum over its nodes.

        Args:
            at: index of the information set.
            weights: weights of its nodes, in the order of `members`.
            values: per node, as returned by `values`.
        """
        player, members = self.infosets[at].player, self.members[at]
        return [
            sum(w * values[self.children[node][move]][player] for w, node in zip(weights, members))
            for move in range(len(self.infosets[at].legal))
        ]

    def decision_order(self, player: int) -> list[int]:
        """The information sets of a player, later ones before those that lead to them.

        Raises:
            ValueError: the player forgets its actions or knowledge, so that no such order or no sound response exists.
        """
        if player not in self._orders:
            before = self.own_past(player)
            past: dict[int, set[tuple[int, int]]] = {}
            for at, infoset in enumerate(self.infosets):
                if infoset.player != player:
                    continue
                past[at] = set[tuple[int, int]]().union(*(before[node] for node in self.members[at]))
                if len(self.members[at]) > 1 and len(past[at]) > 1:
                    raise ValueError(self._forgets(at))
            sorter = TopologicalSorter({at: {earlier for earlier, _ in past[at] if earlier >= 0} for at in past})
            try:
                self._orders[player] = list(sorter.static_order())[::-1]
            except CycleError as error:
                raise ValueError(self._forgets(error.args[1][0])) from None
        return self._orders[player]

    def own_past(self, player: int) -> list[set[tuple[int, int]]]:
        """Per node, the last (information set, move) of the player on each way to it; (-1, -1) before it has moved."""
        before: list[set[tuple[int, int]]] = [set() for _ in self.states]
        for _, node in self.starts:
            before[node].add((-1, -1))
        for node, at in enumerate(self.where):
            own = at >= 0 and self.infosets[at].player == player
            for move, child in enumerate(self.children[node]):
                before[child] |= {(at, move)} if own else before[node]
        return before

    def _forgets(self, at: int) -> str:
        infoset = self.infosets[at]
        return (
            f"player {infoset.player} at {infoset.view!r} has forgotten its own past: a best response is computed for "
            f"games of perfect recall, so put the player's earlier moves and knowledge into the view"
        )


def cached(solve: Callable[[Game], T]) -> Callable[[Game], T]:
    """Caches a function of a game for the most recently used games; games that compare equal share a result."""
    return lru_cache(maxsize=16)(solve)  # type: ignore[return-value]  # mypy cannot see that a Game hashes


@cached
def graph_of(game: Game) -> GameGraph:
    """The graph of a game; do not mutate it."""
    return GameGraph(game)


def info_sets(game: Game) -> list[InfoSet]:
    """Every reachable information set, in the order of deals and moves, earlier decisions first."""
    return list(graph_of(game).infosets)


def _discover(game: Game) -> tuple[dict[State, list[State]], list[tuple[float, State]]]:
    """The states after each state, breadth first, and the deals."""
    if not getattr(game, "solvable", True):
        raise ValueError(f"{game} is too large for exact evaluation")
    deals = game.initial()
    if not abs(sum(chance for chance, _ in deals) - 1) < 1e-9:
        raise ValueError(f"the probabilities of the deals must sum to 1; got {sum(chance for chance, _ in deals)}")
    after: dict[State, list[State]] = {}
    queue = list(dict.fromkeys(state for _, state in deals))
    seen = set(queue)
    for state in queue:  # grows while it is read
        after[state] = [] if game.player(state) is None else [game.next(state, move) for move in game.legal(state)]
        for child in after[state]:
            if child not in seen:
                seen.add(child)
                queue.append(child)
        if len(queue) > MAX_STATES:
            raise ValueError(f"the game has more than {MAX_STATES:,} states: too large for exact evaluation")
    return after, deals


def _sorted(after: dict[State, list[State]]) -> tuple[list[State], dict[State, list[State]]]:
    """The states with parents first, breadth first among the rest."""
    parents = dict.fromkeys(after, 0)
    for children in after.values():
        for child in children:
            parents[child] += 1
    order = [state for state, count in parents.items() if count == 0]
    for state in order:
        for child in after[state]:
            parents[child] -= 1
            if parents[child] == 0:
                order.append(child)
    if len(order) < len(after):
        stuck = next(state for state, count in parents.items() if count)
        raise ValueError(
            f"the game can return to a state it has left, such as {stuck!r}: exact evaluation needs an end"
        )
    return order, after
