"""Games for `benchmarks.credit`, laid out as arrays: many games are sampled at once, as actual episodes.

Payoffs are divided by `scale`, the standard deviation of the returns at the uniform policy (both seats pooled, each
around its own mean), so that one KL weight and one learning rate mean about the same in every game. Reported values are
in the game's own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from legos_envs import exact
from legos_envs.exact.graph import GameGraph, graph_of
from legos_envs.game import ExactPolicy, Game, InfoSet
from legos_envs.games.kuhn_poker import KuhnPokerGame
from legos_envs.games.leduc_poker import LeducPokerGame
from legos_envs.games.matrix_game import MATRIX_GAMES, RPS, MatrixGameRules
from legos_envs.games.nim import NimGame
from legos_envs.records import Episode, Trajectory, Turn

LOPSIDED = (
    tuple(tuple(3 * v + 2.0 for v in row) for row in MATRIX_GAMES["biased_rps"].row),
    tuple(tuple(float(-v) for v in row) for row in MATRIX_GAMES["biased_rps"].row),
)
"""Biased rock-paper-scissors in which the first seat's payoff A became 3 A + 2; the equilibria are the same."""
GAMES: dict[str, Game] = {
    "kuhn": KuhnPokerGame(),
    "leduc": LeducPokerGame(),
    "nim": NimGame(),
    "lopsided": MatrixGameRules(LOPSIDED, (RPS, RPS)),
}


class Played(NamedTuple):
    """One way through a game: its trajectories, and per turn (in the order of the agents) where it was and what it did.

    `cells` index a flat (information sets, moves) table.
    """

    trajectories: dict[str, Trajectory]
    cells: tuple[int, ...]


class Arrays:
    """A game as arrays, with every distinct course of play kept once it has occurred.

    Attributes:
        mask: (S, M) which moves an information set has.
        levels: information sets by depth with the cell that leads to each; None where different pasts merge (Nim).
    """

    def __init__(self, name: str) -> None:
        self.name, self.game = name, GAMES[name]
        self.graph: GameGraph = graph_of(self.game)
        graph = self.graph
        self.moves = max(len(infoset.legal) for infoset in graph.infosets)
        self.mask = np.zeros((len(graph.infosets), self.moves), bool)
        for at, infoset in enumerate(graph.infosets):
            self.mask[at, : len(infoset.legal)] = True
        self.last = self.mask.sum(1) - 1
        self.where = np.array(graph.where)
        self.children = np.zeros((len(graph.states), self.moves), int)
        for node, after in enumerate(graph.children):
            self.children[node, : len(after)] = after
        chances = np.array([chance for chance, _ in graph.starts])
        self.deals, self.chances = np.array([node for _, node in graph.starts]), chances / chances.sum()
        self.uniform = self.mask / self.mask.sum(1, keepdims=True)
        self.scale = self._spread()
        self.levels = self._levels()
        self._kept: dict[tuple[int, ...], Played] = {}

    def _spread(self) -> float:
        graph = self.graph
        reach = graph.reach([self.lists(self.uniform)] * graph.num_players)
        mass = np.array([m for m, r in zip(reach, graph.returns, strict=True) if r])
        returns = np.array([r for r in graph.returns if r])
        centred = returns - mass @ returns
        return float(np.sqrt((mass @ centred**2).mean()))

    def _levels(self) -> list[tuple[np.ndarray, np.ndarray]] | None:
        graph = self.graph
        before: dict[int, tuple[int, int]] = {}
        past = [graph.own_past(player) for player in range(graph.num_players)]
        for node, at in enumerate(graph.where):
            if at < 0:
                continue
            mine = past[graph.infosets[at].player][node]
            if len(mine) != 1 or before.setdefault(at, *mine) not in mine:
                return None
        depth = {-1: -1}
        for at in before:  # in topological order
            depth[at] = depth[before[at][0]] + 1
        by_depth: list[tuple[np.ndarray, np.ndarray]] = []
        for level in range(max(depth.values()) + 1):
            sets = [at for at in before if depth[at] == level]
            cells = [before[at][0] * self.moves + before[at][1] for at in sets]
            by_depth.append((np.array(sets), np.array(cells)))
        return by_depth

    def own_reach(self, policy: np.ndarray) -> np.ndarray:
        """(S,) the probability that the owner of each information set makes the moves that lead to it; 1 for Nim."""
        reach = np.ones(len(policy))
        for sets, cells in (self.levels or [])[1:]:
            reach[sets] = reach[cells // self.moves] * policy.reshape(-1)[cells]
        return reach

    def sample(self, policy: np.ndarray, count: int, group: int, rng: np.random.Generator) -> list[Played]:
        """`count` games under the (S, M) probabilities `policy`; each `group` in a row begin with the same deal."""
        deals = rng.choice(len(self.deals), count // group, p=self.chances)
        nodes = np.repeat(self.deals[deals], group)
        steps = [np.repeat(deals, group)]
        sums = policy.cumsum(1)
        while (live := self.where[nodes] >= 0).any():
            row = sums[self.where[nodes]]
            move = np.minimum((rng.random(count)[:, None] * row[:, -1:] >= row).sum(1), self.last[self.where[nodes]])
            steps.append(np.where(live, move, -1))
            nodes = np.where(live, self.children[nodes, move], nodes)
        return [self._course(path) for path in map(tuple, np.stack(steps, 1).tolist())]

    def _course(self, path: tuple[int, ...]) -> Played:
        found = self._kept.get(path)
        if found is None:
            found = self._kept[path] = self._replay(path)
        return found

    def _replay(self, path: tuple[int, ...]) -> Played:
        graph = self.graph
        turns: list[list[Turn]] = [[] for _ in range(graph.num_players)]
        cells: list[list[int]] = [[] for _ in range(graph.num_players)]
        node = int(self.deals[path[0]])
        for move in path[1:]:
            if (at := graph.where[node]) < 0:
                break
            infoset = graph.infosets[at]
            message = {"role": "user", "content": infoset.view}
            turns[infoset.player].append(Turn((message,), infoset.legal[move], 0.0))
            cells[infoset.player].append(at * self.moves + move)
            node = graph.children[node][move]
        made = {}
        for player, value in enumerate(graph.returns[node]):
            agent = f"player_{player}"
            made[agent] = Trajectory(agent, agent, True, turns[player])
            if turns[player]:
                turns[player][-1].reward = value / self.scale
        return Played(made, tuple(cell for agent in sorted(made) for cell in cells[int(agent[-1])]))

    def episodes(self, played: Sequence[Played], group: int) -> list[Episode]:
        return [Episode(self.name, i, {}, p.trajectories, group=i // group) for i, p in enumerate(played)]

    def lists(self, table: np.ndarray) -> list[list[float]]:
        return [row[: len(s.legal)] for row, s in zip(table.tolist(), self.graph.infosets, strict=True)]

    def exact(self, table: np.ndarray) -> ExactPolicy:
        """The policy of a (S, M) table of probabilities, for `legos_envs.exact`."""
        rows = dict(zip(self.graph.infosets, self.lists(table), strict=True))

        def policy(infoset: InfoSet) -> dict[str, float]:
            return dict(zip(infoset.legal, rows[infoset], strict=True))

        return policy

    def measure(self, table: np.ndarray) -> dict[str, Any]:
        """NashConv in the game's own units; for Nim also the mean probability of an optimal move."""
        policy = self.exact(table)
        out = {"nash_conv": exact.nash_conv(self.game, policy)}
        if self.name == "nim":
            out["optimal_move"] = float(exact.optimal_move_probability(self.game, policy))
        return out
