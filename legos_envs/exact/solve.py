"""Expected returns, best responses, NashConv and equilibria, over the graph of a game.

NashConv (Lanctot et al., 2017) is the sum of what each player could gain by a best response to the others; it is 0
exactly at a Nash equilibrium. In a two-player zero-sum game, exploitability is half of it.
"""

from __future__ import annotations

from legos_envs.exact import cfr
from legos_envs.exact.graph import GameGraph, graph_of
from legos_envs.exact.minimax import minimax_policy
from legos_envs.game import ExactPolicy, Game, InfoSet

TIE = 1e-12


def expected_returns(game: Game, policy: ExactPolicy) -> tuple[float, ...]:
    """Each player's expected return when all play `policy`."""
    graph = graph_of(game)
    return _returns(graph, graph.probabilities(policy))


def best_response(game: Game, policy: ExactPolicy, player: int) -> tuple[float, dict[InfoSet, str]]:
    """A player's best response to the others' `policy`.

    The player chooses once per information set, not per state: every move is valued by its outcomes in all states of
    the set, weighted by the probability that chance and the others lead there (counterfactual reach). If that is zero,
    the states count equally.

    Returns:
        The player's expected return, and the move chosen in each of its information sets (the first one on a tie).

    Raises:
        ValueError: the player is out of range, the policy is malformed, or the game lacks perfect recall.
    """
    graph = graph_of(game)
    if not 0 <= player < graph.num_players:
        raise ValueError(f"player must be from 0 to {graph.num_players - 1}; got {player!r}")
    return _respond(graph, graph.probabilities(policy), player)


def nash_conv(game: Game, policy: ExactPolicy) -> float:
    """The sum over players of each one's gain from a best response to the others; 0 at an equilibrium.

    Raises:
        ValueError: as `best_response`.
    """
    graph = graph_of(game)
    table = graph.probabilities(policy)
    got = _returns(graph, table)
    return sum(_respond(graph, table, player)[0] - got[player] for player in range(graph.num_players))


def nash(game: Game) -> ExactPolicy:
    """A Nash equilibrium of a two-player zero-sum game, or of any game that defines its own.

    The game's own `nash(infoset)` if it has one; minimax if nothing is hidden; otherwise CFR+, which is exact up to a
    NashConv of `cfr.TOLERANCE`. All but the first are computed once per game.

    Raises:
        ValueError: the game has no `nash` method and neither minimax nor CFR+ applies.
    """
    own = getattr(game, "nash", None)
    if own is not None:
        return own
    return minimax_policy(game) if graph_of(game).perfect_information else cfr.equilibrium(game)


def _returns(graph: GameGraph, table: list[list[float]]) -> tuple[float, ...]:
    totals = [0.0] * graph.num_players
    for mass, returns in zip(graph.reach([table] * graph.num_players), graph.returns):
        for player, value in enumerate(returns):
            totals[player] += mass * value
    return tuple(totals)


def _respond(graph: GameGraph, table: list[list[float]], player: int) -> tuple[float, dict[InfoSet, str]]:
    reached = graph.reach_without(player, table)
    values: dict[int, float] = {}
    chosen: dict[int, int] = {}

    def value(root: int) -> float:
        """What the player gets from a node on; all its later information sets are decided."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in values:
                stack.pop()
                continue
            at, children = graph.where[node], graph.children[node]
            if at in chosen:
                children = children[chosen[at] : chosen[at] + 1]
            missing = [child for child in children if child not in values]
            if missing:
                stack += missing
                continue
            stack.pop()
            if at < 0:
                values[node] = graph.returns[node][player]
            elif at in chosen:
                values[node] = values[children[0]]
            else:
                values[node] = sum([p * values[child] for p, child in zip(table[at], children)])
        return values[root]

    for at in graph.decision_order(player):
        members = graph.members[at]
        weights = [reached[node] for node in members]
        if not any(weights):
            weights = [1.0] * len(members)
        best, best_value = 0, -float("inf")
        for move in range(len(graph.infosets[at].legal)):
            total = sum([w * value(graph.children[node][move]) for w, node in zip(weights, members)])
            if total > best_value + TIE:
                best, best_value = move, total
        chosen[at] = best
    total = sum(chance * value(node) for chance, node in graph.starts)
    moves = {infoset: infoset.legal[chosen[at]] for at, infoset in enumerate(graph.infosets) if at in chosen}
    return total, moves
