"""Ratings from results of matches: Elo, OpenSkill, Bradley-Terry. Pure functions of a list of results.

A result is `(first, second, score)`: two names, and the score of the first: 1 for a win, 0.5 for a draw, 0 for a loss.
Elo and OpenSkill depend on the order, so give them the results in the order of a schedule fixed before play, never in
the order in which matches happened to finish. A Bradley-Terry fit sees all results at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from legos_envs import arguments

RatedMatch = tuple[str, str, float]
"""Names of the first and the second, and the score of the first."""
SCALE = 400.0
"""The lead in Elo points of an entrant that is ten times as likely to win as to lose."""


def expected_score(rating: float, other: float) -> float:
    """The score that Elo expects of a rating against another: 0.5 when equal, 10/11 when 400 points ahead."""
    return 1.0 / (1.0 + 10.0 ** (max(-100.0, min(100.0, (other - rating) / SCALE))))


class Elo:
    """Elo ratings (Elo, 1978), updated match by match: `rating += k * (score - expected)`; the sum never changes.

    Args:
        k: maximum change of a rating by one match.
        start: the rating of an entrant that has not played yet.
        ratings: ratings to begin with, by name.

    Raises:
        ValueError: a number is not finite, or `k` negative.
    """

    def __init__(self, k: float = 32.0, start: float = 1500.0, ratings: Mapping[str, float] | None = None):
        self.k, self.start = arguments.real("k", k, 0.0), arguments.real("start", start)
        self.ratings = {name: arguments.real(f"ratings[{name!r}]", value) for name, value in (ratings or {}).items()}

    def update(self, first: str, second: str, score: float) -> tuple[float, float]:
        """Rates one match and returns the new ratings of both."""
        _check(first, second, score)
        a, b = self.ratings.get(first, self.start), self.ratings.get(second, self.start)
        won = self.k * (score - expected_score(a, b))
        self.ratings[first], self.ratings[second] = a + won, b - won
        return a + won, b - won

    def rate(self, results: Iterable[RatedMatch]) -> dict[str, float]:
        """Rates matches one after the other and returns all ratings."""
        for first, second, score in results:
            self.update(first, second, score)
        return dict(self.ratings)


class Skill(NamedTuple):
    """OpenSkill's estimate of an entrant's skill: a normal distribution."""

    mu: float
    sigma: float

    @property
    def ordinal(self) -> float:
        """A skill that the entrant almost certainly has: `mu - 3 sigma`."""
        return self.mu - 3 * self.sigma


def openskill_ratings(
    games: Iterable[Mapping[str, float]], start: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Skill]:
    """Plackett-Luce ratings of the package `openskill` (Weng and Lin, 2011), game by game.

    Args:
        games: the scores of all who played, by name: two or more of them, higher is better, equal scores are a draw.
        start: `(mu, sigma)` to begin with, by name; 25 and 25/3 for all others.

    Raises:
        ImportError: `openskill` is not installed.
        ValueError: a game has fewer than two players, a score is not finite, or a sigma is not positive.
    """
    model = _openskill().PlackettLuce()
    skills = {name: model.rating(*_skill(name, given)) for name, given in (start or {}).items()}
    for game in games:
        if len(game) < 2:
            raise ValueError(f"a game needs the scores of at least two; got {dict(game)!r}")
        scores = [arguments.real(f"the score of {name!r}", value) for name, value in game.items()]
        teams = [[skills.setdefault(name, model.rating())] for name in game]
        for name, (rated,) in zip(game, model.rate(teams, scores=scores)):
            skills[name] = rated
    return {name: Skill(float(rating.mu), float(rating.sigma)) for name, rating in skills.items()}


def _openskill():  # type: ignore[no-untyped-def]  # a module of an extra
    try:
        from openskill import models
    except ImportError:
        raise ImportError(f"OpenSkill ratings need the package openskill: {arguments.install('tasks')}") from None
    return models


def _skill(name: str, given: Sequence[float]) -> tuple[float, float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise ValueError(f"the start of {name!r} must be (mu, sigma); got {given!r}")
    return arguments.real(f"mu of {name!r}", given[0]), arguments.real(f"sigma of {name!r}", given[1], 1e-6)


class Strength(NamedTuple):
    """An entrant's strength: natural logarithm, mean zero over all entrants, and its standard error."""

    log: float
    error: float

    def elo(self) -> float:
        """The strength on Elo's scale, around 1500."""
        return 1500.0 + self.log * SCALE / math.log(10)


def bradley_terry(
    results: Iterable[RatedMatch], prior: float = 0.5, most: int = 100_000, weights: Iterable[float] | None = None
) -> dict[str, Strength]:
    """The Bradley-Terry model, `P(i beats j) = p_i / (p_i + p_j)`, fitted to all results at once.

    The MM algorithm of Hunter (2004); a draw counts as half a win for each. Every entrant also wins and loses `prior`
    games against an imagined one of strength 1, so that the strengths of entrants that won everything stay finite, and
    groups that never met are on one scale. Standard errors are from the curvature at the solution (the inverse Hessian
    of the penalised log likelihood).

    Args:
        results: in any order.
        prior: number of imagined wins, and of imagined losses, of each entrant; larger values pull all strengths
            together.
        most: maximum number of steps of the algorithm.
        weights: how many games each result stands for; 1 by default.

    Raises:
        ValueError: a result or a weight is malformed, their numbers differ, or `prior` is not positive.
        RuntimeError: it has not converged in `most` steps.
    """
    games = list(results)
    prior, most = arguments.real("prior", prior, 1e-6), arguments.whole("most", most, 1)
    names = list(dict.fromkeys(name for first, second, _ in games for name in (first, second)))
    if not names:
        return {}
    where = {name: i for i, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)))  # wins of row against column
    for (first, second, score), weight in zip(games, [1.0] * len(games) if weights is None else weights, strict=True):
        _check(first, second, score)
        times = arguments.real(f"the weight of {first!r} against {second!r}", weight, 0.0)
        wins[where[first], where[second]] += times * score
        wins[where[second], where[first]] += times * (1.0 - score)
    met, won = wins + wins.T, wins.sum(axis=1) + prior
    p = np.ones(len(names))
    for _ in range(most):
        better = won / ((met / np.add.outer(p, p)).sum(axis=1) + 2 * prior / (p + 1.0))
        # Only the prior fixes the common scale, slowly if it is small: a Newton step takes the scale to its optimum.
        even = better / (better + 1.0)
        better *= np.exp(np.clip((0.5 - even).sum() / (even * (1.0 - even)).sum(), -1.0, 1.0))
        moved = float(np.abs(np.log(better / p)).max())
        p = better
        if moved < 1e-12:
            break
    else:
        raise RuntimeError(
            f"the fit still moves by {moved:.1g} after {most} steps; give it a larger prior than {prior}"
        )
    log, errors = np.log(p), _errors(p, met, prior)
    return {name: Strength(float(log[i] - log.mean()), float(errors[i])) for name, i in where.items()}


def _errors(p: np.ndarray, met: np.ndarray, prior: float) -> np.ndarray:
    """Standard errors (N,) of centred log strengths, from strengths (N,) and numbers of games (N, N)."""
    pull = met * np.multiply.outer(p, p) / np.add.outer(p, p) ** 2
    curvature = np.diag(pull.sum(axis=1) + 2 * prior * p / (p + 1.0) ** 2) - pull
    centre = np.eye(len(p)) - 1.0 / len(p)
    return np.sqrt(np.diag(centre @ np.linalg.inv(curvature) @ centre))


def _check(first: str, second: str, score: float) -> None:
    if first == second:
        raise ValueError(f"{first!r} cannot play against itself")
    arguments.real(f"the score of {first!r} against {second!r}", score, 0.0, 1.0)
