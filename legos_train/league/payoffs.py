"""Payoff estimates: of the learner against each member, and of members against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORGET = 0.9
"""The weight that recent results keep after each batch, since the learner has changed."""
PRIOR = 1.0
"""Number of imaginary draws with which the recent win rate starts."""


@dataclass(slots=True)
class Score:
    """The learner's results from one seat against one member; `recent_*` are forgotten by `FORGET` per batch.

    `total` is the sum of the learner's returns, `invalid` how many games ended with an invalid move by anyone: one per
    game, whoever made it and however often they were asked again.
    """

    wins: int = 0
    draws: int = 0
    losses: int = 0
    total: float = 0.0
    invalid: int = 0
    recent_games: float = 0.0
    recent_points: float = 0.0

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    def add(self, mine: float, theirs: float, invalid: bool) -> None:
        """Records one game by both returns. The higher one wins, however small the difference."""
        points = 0.5 if same(mine, theirs) else float(mine > theirs)
        self.wins += points == 1.0
        self.draws += points == 0.5
        self.losses += points == 0.0
        self.total += mine
        self.invalid += invalid
        self.recent_games += 1.0
        self.recent_points += points

    def forget(self) -> None:
        self.recent_games *= FORGET
        self.recent_points *= FORGET


def same(a: float, b: float) -> bool:
    """Whether two returns are equal up to the rounding of their sums."""
    return abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


class Against:
    """The learner's scores, by member and seat."""

    def __init__(self) -> None:
        self.scores: dict[str, dict[str, Score]] = {}

    def add(self, member: str, seat: str, mine: float, theirs: float, invalid: bool) -> None:
        self.scores.setdefault(member, {}).setdefault(seat, Score()).add(mine, theirs, invalid)

    def forget(self) -> None:
        for by_seat in self.scores.values():
            for score in by_seat.values():
                score.forget()

    def win_rate(self, member: str) -> float:
        """The recent share of points against a member, a draw being half a point; 0.5 before the first game."""
        scores = self.scores.get(member, {}).values()
        games = sum(score.recent_games for score in scores)
        return (sum(score.recent_points for score in scores) + PRIOR / 2) / (games + PRIOR)

    def to_json(self) -> dict[str, Any]:
        return {m: {seat: asdict(score) for seat, score in seats.items()} for m, seats in self.scores.items()}

    def load(self, data: dict[str, Any]) -> None:
        self.scores = {m: {seat: Score(**score) for seat, score in seats.items()} for m, seats in data.items()}


class Pairs:
    """Games of members against each other: how many, and the average result of the one in the first seat.

    Kept per ordered pair, first seat first. What counts is half the difference of both returns, which is the return
    itself where the game is zero-sum and the advantage over the other where it is not.
    """

    def __init__(self) -> None:
        self.games: dict[tuple[str, str], int] = {}
        self.sums: dict[tuple[str, str], float] = {}

    def add(self, first: str, second: str, returns: Iterable[Sequence[float]]) -> None:
        for a, b in returns:
            self.games[first, second] = self.games.get((first, second), 0) + 1
            self.sums[first, second] = self.sums.get((first, second), 0.0) + (a - b) / 2

    def drop(self, name: str) -> None:
        for pair in [pair for pair in self.games if name in pair]:
            del self.games[pair], self.sums[pair]

    def known(self, names: Sequence[str]) -> list[str]:
        """The names, in order, that have met all names kept before them, in both orders; at least one."""
        known = list(names[:1])
        for name in names[1:]:
            if all((name, other) in self.games and (other, name) in self.games for other in known):
                known.append(name)
        return known

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(n, n) the mean for the first seat, rows first; 0 where nothing was played."""
        return np.array([[self.sums.get((a, b), 0.0) / self.games.get((a, b), 1) for b in names] for a in names])

    def to_json(self) -> list[list[Any]]:
        return [[first, second, games, self.sums[first, second]] for (first, second), games in self.games.items()]

    def load(self, data: Sequence[Sequence[Any]]) -> None:
        self.games = {(first, second): games for first, second, games, _ in data}
        self.sums = {(first, second): total for first, second, _, total in data}
