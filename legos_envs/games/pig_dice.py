"""Pig: roll a die for points as often as you dare. A 1 loses the points of the turn; holding banks them. It is the
simplest game of risk: perfect play is known for every position, and it is not the play that maximises the points per
turn.

| | |
|---|---|
| seats | `player_0` (begins), `player_1` |
| horizon | about 29 turns under perfect play, 23 under random play |
| sum of rewards | 0 |

A player's turn begins with a roll. A roll of 2 to 6 is added to the turn total, and the player rolls again or holds; a
1 ends the turn with nothing. Holding adds the turn total to the score. A turn in which score plus total reach the goal
wins at once, as there is nothing left to decide. After `max_rounds` rounds, which good play never reaches, the higher
score wins.

## What each seat is told

The rules, the round, its last roll, its turn total, both scores and the goal. Nothing is hidden, but nobody knows
future rolls.

## Actions

`[roll]` or `[hold]`.

## Rewards

+1 to the winner, -1 to the loser, 0 to both if the scores are level after the last round. A player's final info has its
`score`.

## End

When a player reaches the goal, or after `max_rounds` rounds.

## Arguments

The literature and TextArena play to 100, which takes about 65 turns of good play and correspondingly more tokens. In a
game to 30 it is best to always roll, so there is nothing to learn. In a game to 50, perfect play wins 61 % of games
against `hold_at_20` if it moves first.

## Scripted players

`optimal` maximises the probability of winning (by value iteration, once: 0.2 s for a goal of 50, 2 s for 100);
`scripted:hold_at_20` holds at 20 points or more, which maximises the points per turn; `scripted:first` always rolls;
`scripted:last` always holds. All returns are exact, by dynamic programming.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=optimal` | `player_0 +0.0923, player_1 -0.0923` | | `player_0 +0.0923, player_1 -0.0923` |
| `*=random` | `player_0 +0.0886, player_1 -0.0886` | |
| `*=scripted:hold_at_20` | `player_0 +0.1111, player_1 -0.1111` | |
| `player_0=optimal player_1=scripted:hold_at_20` | `player_0 +0.2267, player_1 -0.2267` | |
| `player_0=random player_1=optimal` | `player_0 -0.5692, player_1 +0.5692` | |
| `player_0=optimal player_1=scripted:last` | `player_0 +0.9104, player_1 -0.9104` | |
| `*=scripted:first` | `player_0 +0.1358, player_1 -0.1358` | `goal=30` |

## Source

J. Scarne, "Scarne on Dice", 1945. T. W. Neller and C. G. M. Presser, "Optimal play of the dice game Pig", UMAP Journal
25, 2004, which reports that the first player wins 53.06 % of perfect games to 100; the tests find the same.
"""

from __future__ import annotations

from typing import Any

from legos_envs import arguments
from legos_envs.games import pig_solver
from legos_envs.play import Decision
from legos_envs.spaces import Numbers, last
from legos_envs.table import Rules, Seat, Table
from legos_envs.text_env import TextEnv

MOVES = ("roll", "hold")


def shown(decision: Decision) -> dict[str, int]:
    """The numbers in the last position shown to a player, by name."""
    for message in reversed(decision.messages):
        position = message["content"].rpartition("Turn total: ")
        if position[1]:
            facts = f"Turn total: {position[2]}".partition("\n")[0].rstrip(".").split(". ")
            return {name: int(number) for name, number in (fact.split(": ") for fact in facts)}
    raise LookupError(f"{decision.agent!r} has seen no position of Pig: {decision.messages!r}")


def hold_at_20(decision: Decision) -> str:
    """Holds at 20 points or more, where a roll loses as much as it gains on average."""
    return "hold" if shown(decision)["Turn total"] >= 20 else "roll"


def optimal(decision: Decision) -> str:
    """Maximises the probability of winning, as if there were no last round."""
    at = shown(decision)
    hold = pig_solver.solve(at["Goal"]).hold
    return "hold" if hold[at["Turn total"], at["Your score"], at["Other's score"]] else "roll"


class PigDice(TextEnv):
    """Pig for two players: roll for more points or bank those of the turn; a 1 loses them. First to the goal wins.

    Args:
        goal: points needed to win, 10 to 100.
        max_rounds: turns per player, after which the higher score wins; equal to `goal` by default.

    Raises:
        ValueError: an argument is out of range; or, at `reset`, the option `scores` is not two scores below the goal.
    """

    name = "PigDice-v0"
    zero_sum = True
    default_memory = "state"
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    reset_options = {"scores": "initial scores of player 0 and player 1, such as [30, 42]"}
    scripted_players = {"hold_at_20": hold_at_20, "optimal": optimal}

    def __init__(self, goal: int = 50, max_rounds: int | None = None, **kwargs: Any):
        self.goal = arguments.whole("goal", goal, 10, 100)
        self.max_rounds = arguments.whole("max_rounds", self.goal if max_rounds is None else max_rounds, 1, 1000)
        self.max_asks = 2 * self.max_rounds * (self.goal // 2)  # a turn has at most one roll for every two points
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """Turn total and both scores as shares of the goal, the round as a share of `max_rounds`."""

        def read(text: str) -> list[float]:
            points = [int(last(rf"{what}: (\d+)", text) or 0) for what in ("Turn total", "Your score", "Other's score")]
            return [*(n / self.goal for n in points), int(last(r"Round (\d+) of", text) or 0) / self.max_rounds]

        return Numbers(MOVES, ("turn total", "own score", "other's score", "round"), read)

    def play(self, table: Table) -> Rules[float]:
        scores = self._scores(table.options.get("scores"))
        for agent in self.possible_agents:
            table.tell(agent, self.rules())
        for number in range(self.max_rounds):
            for player in range(2):
                yield from self._turn(table, number, player, scores)
                if scores[player] >= self.goal:
                    return self._settle(table, scores)
        return self._settle(table, scores)

    def _turn(self, table: Table, number: int, player: int, scores: list[int]) -> Rules[None]:
        total = 0
        while (face := int(table.rng.integers(1, 7))) != 1:
            total += face
            if scores[player] + total >= self.goal:
                move = "hold"
            else:
                move = yield from table.ask(
                    self.possible_agents[player],
                    f"Round {number + 1} of {self.max_rounds}. You rolled {face}. Turn total: {total}. "
                    f"Your score: {scores[player]}. Other's score: {scores[1 - player]}. Goal: {self.goal}.",
                    legal=MOVES,
                )
            if move == "hold":
                scores[player] += total
                return

    def _settle(self, table: Table, scores: list[int]) -> float:
        won = float(scores[0] > scores[1]) - float(scores[0] < scores[1])
        for player, agent in enumerate(self.possible_agents):
            table.reward(agent, won if player == 0 else -won)
            table.note(agent, score=scores[player])
        return won

    def rules(self) -> str:
        """The rules as stated to both players."""
        return (
            f"Pig. Who first has {self.goal} points wins. In your turn a die is rolled. 2 to 6 adds to your turn "
            f"total; then roll again or hold. Hold adds the turn total to your score and ends your turn. "
            f"1 ends your turn and the turn total is lost. You win at once when score and turn total make {self.goal}. "
            f"After {self.max_rounds} rounds the higher score wins."
        )

    def _scores(self, given: Any) -> list[int]:
        if given is None:
            return [0, 0]
        if not isinstance(given, (list, tuple)) or len(given) != 2:
            raise ValueError(f"option scores must be two scores, such as [30, 42]; got {given!r}")
        return [arguments.whole("option scores", score, 0, self.goal - 1) for score in given]
