"""A tournament: every match is an episode of another env, played as a function inside this one. By default four
entrants meet in a round robin of six concurrent debates; the other format is a bracket, where winners advance to the
next round.

| | |
|---|---|
| seats | `match_0/pro_0`, `match_0/con_0`, `match_0/judge_0` (not trainable), ... `match_5/judge_0` |
| horizon | 36 turns, of which 12 are ready at once; with another match, the turns of all matches together |
| sum of rewards | 0; with another match, as there |
| sample action | `"[A]" if info["role"] == "judge" else f"{info['entrant']} says: it is so."` |

## What each seat is told

What the match tells each of its seats, and nothing about other matches or the standings. `info["entrant"]` names the
occupant of a seat, `entrant_0` to `entrant_3`; in a bracket, only once the match has begun. An entrant occupies several
seats, and policies can be assigned by entrant.

## Actions

Those of the match; in a debate any text, and `[A]` or `[B]` for the judge.

## Rewards

The rewards of each match; a debate pays +1, 0 or -1, zero-sum. With `prize`, placement pays as well: `prize` to the
first, `-prize` to the last, evenly spaced in between; tied entrants share the prizes of their places. An entrant's
prize is split evenly over its seats, excluding those of void matches (below) unless all of them are void, and all
prizes add up to 0. Range: -1 - prize to 1 + prize.

A forfeit counts as a loss of that match only and is settled within it. A match whose judge gives no valid verdict is
void: it pays nothing, and its seats end with `info["trainable"]` False, so that nothing is learned from it. If all
matches are void, the episode ends as `"unscored"`.

## End

After the last match. Infos: `standings` (a list, best first: entrant, rank from 1, points, wins, draws, losses),
`champion` (None if first place is shared), `outcome` (the champion or `"shared"`) and `records` (of every match:
entrants, returns, scores, ending). Each seat has the `score` and `ending` of its match, and the `rank` of its entrant.

A win is worth 1 point, a draw half a point; in a match with more seats, points are the share of the others that an
entrant beat, and anything between 0 and 1 counts among `draws`. Round robin: ranked by points; entrants with equal
points share a rank. Bracket: ranked by the round reached; entrants eliminated in the same round share a rank. The
better seed wins a drawn or void match of a bracket.

## Arguments

With `match=None`, matches are contests as in `HeadToHead-v0`. Round robin: everybody meets everybody once; the first
seat alternates. If a match has more seats, every group of entrants that fills it meets once, and everybody gets each
seat about equally often. Bracket: one match fewer than entrants; seeds are drawn at random in every episode, the best
seeds get byes if the number of entrants is not a power of two, seeds 1 and 2 cannot meet before the final, and the
first seat is drawn at random. A match begins as soon as both of its players are known.

The reset options of the match apply to every match, as do `memory`, `action_format`, `preset`, `invalid_retries`,
`invalid_reward` and `invalid_opponent_reward`.

## Scripted players

Those of the match; by default debaters `long`, `short` and `on_topic`, and judges `longer`, `first` and `on_topic`, the
one to train with if you have no model for that seat.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:on_topic` | `match_0/pro_0 0` | | `match_0/pro_0 -1, words 0` |
| `pro=scripted:long con=scripted:short judge=scripted:longer` | `pro +1, con -1` | |
| `judge=scripted:first *=random` | `pro 0, con 0` | |
| `answer=scripted:long judge=scripted:first` | `answer 0` | `match=None, format="bracket"` |
| `*=optimal` | `player_0 -0.0556, player_1 +0.0556` | `match="KuhnPoker-v0"` |

## Source

The debates: G. Irving, P. Christiano and D. Amodei, 2018, "AI safety via debate" (arXiv:1805.00899). The bracket is
standard seeded single elimination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from legos_envs import arguments
from legos_envs.table import Rules, Table
from legos_envs.tasks.contests.matches import Match, MatchEnv, MatchResult, Seating, entrant_names, round_robin

FORMATS = ("round_robin", "bracket")
Bracket = int | tuple[str, "Bracket", "Bracket"]
"""A node of a bracket: a seed, from 0, or the match between two nodes."""


class Tournament(MatchEnv):
    """A round robin or a bracket.

    Args:
        num_entrants: number of entrants, 2 to 16.
        format: `"round_robin"`; or `"bracket"`: single elimination.
        match: an env with two or more trainable seats (an id, a class or an env), exactly two for a bracket; None for
            the contest.
        match_kwargs: its constructor arguments.
        prize: reward for first place, 0 to 10; last place loses the same amount.
        source: items for a match that has `source`: prompts of the contest, motions of debates. Related arguments
            (`fields`, `config`, `bad_rows`) belong in `match_kwargs`.
        split: items to use, `"all"`, `"train"` or `"test"`; for a match that has `split`.

    Raises:
        ValueError: an argument is out of range, or the number of entrants does not fit the seats of the match.
    """

    name = "Tournament-v0"

    def __init__(
        self,
        num_entrants: int = 4,
        format: str = "round_robin",
        match: Match = "Debate-v0",
        match_kwargs: Mapping[str, Any] | None = None,
        prize: float = 0.0,
        source: Any = None,
        split: str = "all",
        **kwargs: Any,
    ):
        self.entrants = entrant_names(num_entrants)
        self.format = arguments.one_of("format", format, FORMATS)
        self.prize = arguments.real("prize", prize, 0.0, 10.0)
        options = {}
        if format == "bracket":
            self.bracket = bracket(num_entrants)
            options = {"seeding": "all entrants, from the best seed to the worst, for a bracket"}

        def seated(seats: int) -> Seating:
            if format == "round_robin":
                return round_robin(self.entrants, seats)
            if seats != 2:
                raise ValueError("a bracket needs matches with two trainable seats; use format='round_robin'")
            return [(None, None)] * (num_entrants - 1)

        super().__init__(match, match_kwargs, seated, options, source=source, split=split, **kwargs)

    def play(self, table: Table) -> Rules[list[dict[str, Any]]]:
        """Returns the standings."""
        if self.format == "bracket":
            results, reached = yield from self._bracket(table)
        else:
            results, reached = yield from self._round_robin(table)
        standings = self._standings(self.scored(results), reached)
        ranks = {row["entrant"]: row["rank"] for row in standings}
        for result in results:
            for seat, entrant in zip(self.sides, result.entrants):
                table.note(f"{result.match}/{seat}", rank=ranks[entrant])
        if self.prize:
            self._award(table, results, ranks)
        first = [name for name, rank in ranks.items() if rank == 1]
        champion = first[0] if len(first) == 1 else None
        table.note(
            standings=standings,
            champion=champion,
            outcome=champion or "shared",
            records=[result.record() for result in results],
        )
        return standings

    def _round_robin(self, table: Table) -> Rules[tuple[list[MatchResult], dict[str, float]]]:
        """All results, and the ranking criterion: points."""
        groups = round_robin(self.entrants, len(self.sides))
        results = yield from table.gather([self.run(table, name, group) for name, group in zip(self.matches, groups)])
        return results, points(self.entrants, results)

    def _bracket(self, table: Table) -> Rules[tuple[list[MatchResult], dict[str, float]]]:
        """All results, and the ranking criterion: the round reached, largest for the champion."""
        seeds = self._seeding(table)
        swapped = dict(zip(self.matches, table.rng.random(len(self.matches)) < 0.5))
        results: dict[str, MatchResult] = {}
        left = dict.fromkeys(self.entrants, 0.0)  # rounds left to play at elimination: 0 for the champion

        def winner(place: Bracket, rounds: int) -> Rules[int]:
            """Plays all matches below a node; returns the winning seed."""
            if isinstance(place, int):
                return place
            name, *below = place
            best, worst = sorted((yield from table.gather([winner(node, rounds + 1) for node in below])))
            sitting = (worst, best) if swapped[name] else (best, worst)
            result = results[name] = yield from self.run(table, name, [seeds[seed] for seed in sitting])
            lost = result.scores[sitting.index(best)] < result.scores[sitting.index(worst)]
            left[seeds[best if lost else worst]] = -1.0 - rounds
            return worst if lost else best

        yield from winner(self.bracket, 0)
        return [results[name] for name in self.matches], left

    def _seeding(self, table: Table) -> list[str]:
        given = table.options.get("seeding")
        if given is None:
            return [self.entrants[i] for i in table.rng.permutation(len(self.entrants))]
        if not isinstance(given, list | tuple) or sorted(map(str, given)) != sorted(self.entrants):
            raise ValueError(f"option seeding must be {self.entrants} in some order; got {given!r}")
        return list(given)

    def _standings(self, results: Sequence[MatchResult], reached: Mapping[str, float]) -> list[dict[str, Any]]:
        """One row per entrant, best first; the rank is one more than the number of better entrants."""
        got = points(self.entrants, results)
        rows = []
        for name in sorted(self.entrants, key=lambda name: -reached[name]):
            own = [result.scores[result.entrants.index(name)] for result in results if name in result.entrants]
            rows.append(
                {
                    "entrant": name,
                    "rank": 1 + sum(other > reached[name] for other in reached.values()),
                    "points": got[name],
                    "wins": own.count(1.0),
                    "draws": len(own) - own.count(1.0) - own.count(0.0),
                    "losses": own.count(0.0),
                }
            )
        return rows

    def _award(self, table: Table, results: Iterable[MatchResult], ranks: Mapping[str, int]) -> None:
        """Pays prizes, evenly spaced from `prize` for first place to `-prize` for last place."""
        counting: dict[str, list[str]] = {name: [] for name in self.entrants}
        void: dict[str, list[str]] = {name: [] for name in self.entrants}
        for result in results:
            for seat, entrant in zip(self.sides, result.entrants):
                (void if result.void else counting)[entrant].append(f"{result.match}/{seat}")
        places = sorted(ranks.values())
        for name, rank in ranks.items():
            place = rank - 1 + (places.count(rank) - 1) / 2  # the middle of the shared places
            value = self.prize * (1 - 2 * place / (len(places) - 1))
            seats = counting[name] or void[name]
            for agent in seats:
                table.reward(agent, value / len(seats))


def points(entrants: Sequence[str], results: Iterable[MatchResult]) -> dict[str, float]:
    """Each entrant's sum of scores, rounded: sums of thirds depend on their order, and equal ones share a rank."""
    got = dict.fromkeys(entrants, 0.0)
    for result in results:
        for name, score in zip(result.entrants, result.scores):
            got[name] += score
    return {name: round(total, 9) for name, total in got.items()}


def bracket(num_entrants: int) -> Bracket:
    """The tree of a seeded single elimination: seed 0 meets the last seed, and seeds 0 and 1 can meet only in the
    final.

    Matches are numbered round by round, so that the final comes last; seeds without an opponent advance without a
    match.
    """
    order = [0]
    while len(order) < num_entrants:
        order = [seed for best in order for seed in (best, 2 * len(order) - 1 - best)]
    places: list[Bracket | None] = [seed if seed < num_entrants else None for seed in order]
    number = 0
    while len(places) > 1:
        above: list[Bracket | None] = []
        for one, other in zip(places[::2], places[1::2]):
            if one is None or other is None:
                above.append(one if other is None else other)
            else:
                above.append((f"match_{number}", one, other))
                number += 1
        places = above
    assert places[0] is not None
    return places[0]
