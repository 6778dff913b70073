"""Several entrants meet in pairs on a schedule drawn before play. All matches run concurrently, and Elo or OpenSkill
ratings are computed afterwards in schedule order, so it does not matter which match finishes first.

| | |
|---|---|
| seats | `match_0/answer_0`, `match_0/answer_1`, `match_0/judge_0` (not trainable), ... `match_5/judge_0` |
| horizon | 24 turns: 12 answers, 12 verdicts; with another match, the turns of all matches together |
| sum of rewards | 0; with another match, as there |
| sample action | `"[A]" if info["role"] == "judge" else f"{info['entrant']} says: it depends."` |

## What each seat is told

What the match tells them. By default both entrants of a match get the same prompt, and a judge compares their answers
in both orders. Entrants learn nothing about other matches, nor who their opponent is. `info["entrant"]` names the
occupant of a seat, `entrant_0` to `entrant_3`; an entrant occupies several seats, and policies can be assigned by
entrant.

## Actions

Answers: any text. Judges: `[A]` or `[B]`. Another match has its own actions.

## Rewards

The rewards of each match; the contest pays +1, 0 or -1, zero-sum. Ratings are information, not rewards. Range: -1 to 1.

A forfeit counts as a loss of that match. A match whose judge gives no valid verdict is void: it pays nothing, is not
rated, and its seats end with `info["trainable"]` False, so that nothing is learned from it. If all matches are void,
the episode ends as `"unscored"`.

## End

After the last match. Infos: `ratings` by entrant, `records` (of every match, in schedule order: entrants, returns,
scores, ending), `leader` (the highest rating, None on a tie) and `outcome` (the leader or `"shared"`); each seat has
its entrant's `rating`. With OpenSkill a rating is `[mu, sigma]` and the leader has the highest `mu`.

## Arguments

A random schedule repeatedly shuffles and pairs the entrants, so that nobody plays two matches more than another. The
order within a pair is random as well. A match with more than two seats takes that many entrants at a time; for Elo it
counts as one game between every two of them, with `k` divided by the number of opponents.

The reset options of the match apply to every match, as do `memory`, `action_format`, `preset`, `invalid_retries`,
`invalid_reward` and `invalid_opponent_reward`.

## Scripted players

Answers: `long`, `short` and `on_topic`. Judges: `longer` (A on a tie), `first` (always A) and `on_topic`, the one to
train with if you have no model for that seat, as in `HeadToHead-v0`. Another match has its own players.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:on_topic` | `match_0/answer_0 0` | | `match_0/answer_0 -1, words 0` |
| `answer=scripted:long judge=scripted:longer` | `match_0/answer_0 0, match_0/answer_1 0` | |
| `*=random` | `match_0/answer_0 0, match_5/answer_1 0` | |
| `*=optimal` | `player_0 -0.0556, player_1 +0.0556` | `match="KuhnPoker-v0"` |

## Source

A. E. Elo, "The Rating of Chessplayers, Past and Present", 1978. R. C. Weng and C.-J. Lin, "A Bayesian Approximation
Method for Online Ranking", JMLR 12, 2011 (OpenSkill).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from legos_envs import arguments
from legos_envs.scoring import Elo, openskill_ratings
from legos_envs.table import Rules, Table
from legos_envs.tasks.contests.matches import (
    MOST_MATCHES,
    Match,
    MatchEnv,
    MatchResult,
    Seating,
    entrant_names,
    round_robin,
)

SCHEDULES = ("random", "round_robin")
RATINGS = ("elo", "openskill")


class EloArena(MatchEnv):
    """Scheduled matches with ratings.

    Args:
        num_entrants: number of entrants, 2 to 16.
        match: an env with two or more trainable seats (an id, a class or an env); None for the contest.
        match_kwargs: its constructor arguments.
        schedule: `"random"`; or `"round_robin"`: every group of entrants that fills a match meets once, and everybody
            gets each seat about equally often.
        matches: number of matches to draw, up to 128; None for as many as in a round robin.
        ratings: `"elo"`; or `"openskill"`: the Plackett-Luce model of the package `openskill`.
        k: maximum change of an Elo rating per match, 0 to 1000.
        source: items for a match that has `source`: prompts of the contest, motions of debates. Related arguments
            (`fields`, `config`, `bad_rows`) belong in `match_kwargs`.
        split: items to use, `"all"`, `"train"` or `"test"`; for a match that has `split`.

    Raises:
        ValueError: an argument is out of range, or the number of entrants does not fit the seats of the match.
        ImportError: OpenSkill is requested but not installed.
    """

    name = "EloArena-v0"

    def __init__(
        self,
        num_entrants: int = 4,
        match: Match = None,
        match_kwargs: Mapping[str, Any] | None = None,
        schedule: str = "random",
        matches: int | None = None,
        ratings: str = "elo",
        k: float = 32.0,
        source: Any = None,
        split: str = "all",
        **kwargs: Any,
    ):
        self.entrants = entrant_names(num_entrants)
        self.schedule = arguments.one_of("schedule", schedule, SCHEDULES)
        if matches is not None and schedule == "round_robin":
            raise ValueError(f"matches is for schedule 'random'; a round robin sets the number; got {matches!r}")
        if matches is not None:
            arguments.whole("matches", matches, 1, MOST_MATCHES)
        self.ratings = arguments.one_of("ratings", ratings, RATINGS)
        self.k = arguments.real("k", k, 0.0, 1000.0)
        if ratings == "openskill":
            openskill_ratings([])  # fails now if it is missing, not after the matches

        def seated(seats: int) -> Seating:
            every = round_robin(self.entrants, seats) if matches is None or schedule == "round_robin" else ()
            if seats > num_entrants:
                raise ValueError(f"num_entrants must be at least the number of seats of a match; got {num_entrants}")
            return every if schedule == "round_robin" else [(None,) * seats] * (matches or len(every))

        options = {"start": "initial ratings, by entrant: a number, or [mu, sigma]"}
        super().__init__(match, match_kwargs, seated, options, source=source, split=split, **kwargs)

    def play(self, table: Table) -> Rules[dict[str, Any]]:
        """Returns the ratings."""
        start = self._start(table.options.get("start", {}))
        random = self.schedule == "random"
        groups = self._draw(table) if random else round_robin(self.entrants, len(self.sides))
        results = yield from table.gather([self.run(table, name, group) for name, group in zip(self.matches, groups)])
        ratings = self._rate(self.scored(results), start)
        value = {name: rating[0] if isinstance(rating, list) else rating for name, rating in ratings.items()}
        best = [name for name in self.entrants if value[name] == max(value.values())]
        for result in results:
            for seat, entrant in zip(self.sides, result.entrants):
                table.note(f"{result.match}/{seat}", rating=ratings[entrant])
        leader = best[0] if len(best) == 1 else None
        table.note(
            ratings=ratings,
            records=[result.record() for result in results],
            leader=leader,
            outcome=leader or "shared",
        )
        return ratings

    def _draw(self, table: Table) -> list[tuple[str, ...]]:
        """A random schedule: entrants are shuffled, seated in that order, and reshuffled when too few are left."""
        groups: list[tuple[str, ...]] = []
        queue: list[str] = []
        while len(groups) < len(self.matches):
            if len(queue) < len(self.sides):
                queue += [self.entrants[i] for i in table.rng.permutation(len(self.entrants))]
            group = list(dict.fromkeys(queue))[: len(self.sides)]
            for entrant in group:
                queue.remove(entrant)
            groups.append(tuple(group))
        return groups

    def _rate(self, results: Sequence[MatchResult], start: Mapping[str, Any]) -> dict[str, Any]:
        """Ratings after the rated results, in schedule order, as JSON values."""
        rated = [result for result in results if result.rated]
        if self.ratings == "elo":
            elo = Elo(self.k / (len(self.sides) - 1), ratings=start)
            return elo.rate(game for result in rated for game in _games(result))
        skills = openskill_ratings([dict(zip(result.entrants, result.scores)) for result in rated], start)
        return {name: list(skill) for name, skill in skills.items()}

    def _start(self, given: Any) -> dict[str, Any]:
        """Ratings of all entrants before the first match."""
        if not isinstance(given, Mapping):
            raise ValueError(f"option start must be ratings by entrant, such as {{'entrant_0': 1600}}; got {given!r}")
        for name in given:
            if name not in self.entrants:
                raise ValueError(arguments.unknown("option start: entrant", name, self.entrants))
        if self.ratings == "elo":
            return Elo(ratings=dict.fromkeys(self.entrants, 1500.0) | dict(given)).ratings
        fresh = (25.0, 25.0 / 3)
        return {
            name: list(skill)
            for name, skill in openskill_ratings([], dict.fromkeys(self.entrants, fresh) | dict(given)).items()
        }


def _games(result: MatchResult) -> list[tuple[str, str, float]]:
    """A match as two-player games: every seat against every other, the higher score wins."""
    seats = list(zip(result.entrants, result.scores))
    return [(a, b, 0.5 if one == other else float(one > other)) for (a, one), (b, other) in combinations(seats, 2)]
