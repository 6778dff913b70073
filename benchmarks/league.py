"""The gain from a league: exploitability with and without one, on exactly solvable games, without a model.

    python -m benchmarks.league                 # biased rock-paper-scissors and Kuhn poker, four modes, three seeds
    python -m benchmarks.league --games kuhn --modes psro --seeds 0 1 2 3 4

The learner is a table of logits, updated by NeuRD (Hennes et al. 2020, arXiv 1906.00190): logits += rate * advantage of
each move against the batch's opponents, without regularisation or averaging; logits stay within a bound. Everything
else comes from the `legos_train.league.League` of a training run: snapshots, plans, payoffs from sampled games,
mixtures.

Exploitability is NashConv / 2. `last` is the learner after the last step, `last 100` its median and worst over the last
100 steps (a cycle shows here), `average` all its iterates, which a language model cannot play, `mixture` the pool
averaged by `league.mixture` for each seat. Averages are of realisation weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import mlx.core as mx
import numpy as np

import legos_envs
from legos_envs.exact.cfr import Tree
from legos_envs.exact.graph import graph_of
from legos_envs.game import Game
from legos_envs.records import Episode, Trajectory
from legos_envs.table import keyed_generator
from legos_train import League
from legos_train.league import LeagueSettings, mark

GAMES = {"biased_rps": ("MatrixGame-v0", {"game": "biased_rps"}), "kuhn": ("KuhnPoker-v0", {})}
MODES = ("mirror", "fsp", "pfsp", "psro")
SEATS = ("player_0", "player_1")
BOUND = 3.0
BAR = 0.05


class Tabular:
    """A two-player zero-sum game in sequence form: `payoffs` (n0, n1) of player 0 over both players' sequences."""

    def __init__(self, game: Game):
        graph = graph_of(game)
        self.trees = Tree(graph, 0), Tree(graph, 1)
        chances = graph.reach([None, None])
        ends = [node for node, returns in enumerate(graph.returns) if returns]
        self.chance = np.array([chances[node] for node in ends])
        self.first = np.array([graph.returns[node][0] for node in ends])
        self.rows, self.columns = (tree.last[ends] for tree in self.trees)
        self.payoffs = np.zeros((self.trees[0].size, self.trees[1].size))
        np.add.at(self.payoffs, (self.rows, self.columns), self.chance * self.first)

    def shares(self, logits: np.ndarray, seat: int) -> np.ndarray:
        """(n,) probabilities of moves in the seat's information sets, from logits (n0 + n1,)."""
        tree, cut = self.trees[seat], self.trees[0].size
        grown = np.exp(logits[cut:] if seat else logits[:cut])
        return tree.match(grown)

    def weights(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both seats' strategies in sequence form."""
        first, second = (tree.weights(self.shares(logits, i)) for i, tree in enumerate(self.trees))
        return first, second

    def gradient(self, seat: int, other: np.ndarray) -> np.ndarray:
        """What each sequence of a seat is worth against the other's strategy."""
        return -self.payoffs.T @ other if seat else self.payoffs @ other

    def exploitability(self, first: np.ndarray, second: np.ndarray) -> float:
        """NashConv / 2 of two strategies in sequence form."""
        return (self.trees[0].best(self.gradient(0, second)) + self.trees[1].best(self.gradient(1, first))) / 2

    def sample(self, first: np.ndarray, second: np.ndarray, games: int, rng: np.random.Generator) -> np.ndarray:
        """(games,) what player 0 gets in games that are played out."""
        chances = self.chance * first[self.rows] * second[self.columns]
        return rng.choice(self.first, size=games, p=chances / chances.sum())


def train(game: Tabular, mode: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """One run; its exploitabilities."""
    league = League(
        LeagueSettings(
            mode=mode,
            snapshot_every=options.snapshot_every,
            pool=options.pool,
            latest=options.latest,
            payoff_games=options.payoff_games,
        ),
        seed,
    )
    cut = game.trees[0].size
    logits = keyed_generator(seed, "start").normal(size=cut + game.trees[1].size)
    players: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    path: list[float] = []
    average = [np.zeros(tree.size) for tree in game.trees]

    def snapshot(step: int) -> None:
        if not league.snapshot_due(step):
            return
        name = f"step_{step}"
        league.add(name, {"logits": mx.array(logits)})
        players[name] = game.weights(np.array(league.weights[name]["logits"], np.float64))
        rng = keyed_generator(seed, f"payoffs/{step}")
        for a, b in league.missing_pairs():
            paid = game.sample(players[a][0], players[b][1], league.pair_games, rng)
            league.record_pair(a, b, [(value, -value) for value in paid.tolist()])

    snapshot(0)
    for step in range(options.steps):
        rng = keyed_generator(seed, f"games/{step}")
        mine = game.weights(logits)
        push = [np.zeros(tree.size) for tree in game.trees]
        met = [0, 0]
        episodes, plans = [], []
        for number in range(options.batch):
            plan = league.plan(step, number, SEATS)
            seated = [players[plan[agent]][i] if agent in plan else mine[i] for i, agent in enumerate(SEATS)]
            for i, agent in enumerate(SEATS):
                if agent not in plan:
                    push[i] += game.gradient(i, seated[1 - i])
                    met[i] += 1
            if plan:
                paid = float(game.sample(seated[0], seated[1], 1, rng)[0])
                got = dict(zip(SEATS, (paid, -paid)))
                episode = Episode(mode, number, {}, {a: Trajectory(a, a, carry=value) for a, value in got.items()})
                mark(episode, plan)
                episodes.append(episode)
                plans.append(plan)
        league.observe(episodes, plans)
        for i, tree in enumerate(game.trees):
            if met[i]:
                moved = logits[cut:] if i else logits[:cut]  # a view
                moved += options.rate * tree.regrets(push[i] / met[i], game.shares(logits, i))
                np.clip(moved, -BOUND, BOUND, out=moved)
        snapshot(step + 1)
        path.append(game.exploitability(*game.weights(logits)))
        for total, weights in zip(average, mine):
            total += weights / options.steps
    out = {"last": path[-1], "median": statistics.median(path[-100:]), "worst": max(path[-100:])}
    out["average"] = game.exploitability(*average)
    mixtures = [league.mixture(side) for side in (0, 1)]
    if mixtures[0]:
        first, second = (
            np.sum([share * players[name][i] for name, share in mixtures[i].items()], axis=0) for i in (0, 1)
        )
        out["mixture"] = game.exploitability(first, second)
        out["members"] = sum(share > 1e-9 for share in mixtures[0].values())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=[*GAMES], default=[*GAMES])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16, help="episodes planned per step")
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--snapshot-every", type=int, default=10)
    parser.add_argument("--pool", type=int, default=25)
    parser.add_argument("--latest", type=float, default=0.2)
    parser.add_argument("--payoff-games", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="keep the numbers here")
    options = parser.parse_args()
    rows = []
    print("exploitability      seed    last  last 100: median  worst  average   mixture  (members in it)   bar")
    for name in options.games:
        env_id, arguments = GAMES[name]
        game = Tabular(legos_envs.make(env_id, **arguments).unwrapped.game)
        for mode in options.modes:
            for seed in options.seeds:
                began = time.process_time()
                row = train(game, mode, seed, options)
                row = {"game": name, "mode": mode, "seed": seed, **row, "cpu_seconds": time.process_time() - began}
                rows.append(row)
                mixed = f"{row['mixture']:9.3f}  ({row['members']:2})" if "mixture" in row else "        -      "
                met = row.get("mixture", row["worst"]) <= BAR
                last = f"{row['last']:7.3f}  {row['median']:16.3f} {row['worst']:6.3f} {row['average']:8.3f}"
                print(
                    f"{name:11} {mode:7} {seed:4} {last} {mixed}"
                    f"  {'met' if met else 'not met':>14}  {row['cpu_seconds']:5.1f} s",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
