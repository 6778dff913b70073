"""Two entrants meet: they answer the same prompt and a judge decides, or they play any other two-seat env twice, with
the same deal and swapped seats; in a three-seat env, three entrants meet three times. Three or more entrants can also
answer one prompt; then every pair of answers is compared.

| | |
|---|---|
| seats | `match_0/answer_0`, `match_0/answer_1` (role `answer`), `match_0/judge_0` (role `judge`, not trainable) |
| horizon | 4 turns: two answers at once, two verdicts; with another match, the turns of all games together |
| sum of rewards | 0; with another match, as there |
| sample action | `"[A]" if info["role"] == "judge" else "It is blue light that air scatters most."` |

## What each seat is told

Answers: the prompt. The judge: the prompt and two answers, A and B, as quoted text; it is asked twice, the second time
in a new conversation with the answers swapped. With `num_entrants` above 2 there is a judge for each pair, and all are
asked at once.

With another `match`, the seats are told what that env tells them. The seats of game `k` are `match_k/...`; all games
run concurrently, and no seat sees anything of another game. `info["entrant"]` names the occupant of a seat: `entrant_0`
or `entrant_1`.

## Actions

Answers: any text; judges read at most 2000 characters of it. The judge: `[A]` or `[B]`. Another match has its own
actions.

## Rewards

A contest pays 1 to the answer that the judge prefers in both orders and -1 to the other, or 0 if the verdicts differ.
With more entrants, each gets the mean over its pairs. Another match pays its own rewards. Range: -1 to 1 for the
contest.

A forfeit counts as a loss of that game only, and is settled within it. A game whose judge gives no valid verdict is
void: it pays nothing, and its seats end with `info["trainable"]` False, so that nothing is learned from it. If all
games are void, the episode ends as `"unscored"`.

## End

After the last game. Infos: `records` (of every game: seating, returns, scores, ending), `points` by entrant (1 for a
win, 0.5 for a draw; with more entrants, the share of the others that it beat), `winner` (None on a tie) and `outcome`
(the winner or `"draw"`). Each seat has the `score` and `ending` of its game.

## Arguments

One prompt in eight is handwritten, the others come from templates; a fifth of all, chosen by a hash of their text, is
the split `"test"`. Games of the contest are not swapped, since its seats are interchangeable and judges see both
orders: each game has its own prompt. `source=` sets your own prompts, and `match_kwargs={"criteria": "..."}` tells
judges what counts. The reset options of the match apply to every game, as do `memory`, `action_format`, `preset`,
`invalid_retries`, `invalid_reward` and `invalid_opponent_reward`.

## Scripted players

Answers: `long` and `short`, meant for the judge `longer` (A on a tie); `on_topic` names the keywords of the prompt, and
`random` at most two of them. Other judges are `first` (always A) and `on_topic`, the one to train with if you have no
model for that seat: it prefers the answer that names more keywords of the prompt, as in `Debate-v0`, and is satisfied
by a bare list of them. Another match has its own players. The row of `optimal` shows the value of Kuhn poker for each
seat.

| players | expected return | arguments | floor |
|---|---|---|---|
| `match_0/answer_0=scripted:long *=scripted:short` | `match_0/answer_0 +1, match_0/answer_1 -1` | |
| `match_0/answer_0=scripted:on_topic judge=scripted:on_topic *=scripted:short` | `match_0/answer_0 +1` | |
| `*=scripted:on_topic` | `match_0/answer_0 0` | | `match_0/answer_0 -1, words 0` |
| `judge=scripted:first *=random` | `match_0/answer_0 0, match_0/answer_1 0` | |
| `*=random` | `match_0/answer_0 0, match_0/answer_1 0` | |
| `match_0/answer_2=scripted:short *=scripted:long` | `match_0/answer_0 +0.5, answer 0` | `num_entrants=3` |
| `*=optimal` | `player_0 -0.0556, player_1 +0.0556` | `match="KuhnPoker-v0"` |

## Source

Pairwise comparison by a model, in both orders: Zheng et al., 2023, "Judging LLM-as-a-Judge" (arXiv:2306.05685). Games
with the same deal and seats swapped: duplicate play, as in bridge and computer poker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legos_envs import arguments
from legos_envs.table import Rules, Table
from legos_envs.tasks.contests.contest import MOST
from legos_envs.tasks.contests.matches import Match, MatchEnv, entrant_names


class HeadToHead(MatchEnv):
    """Games between two entrants, or one prompt for several.

    Args:
        match: an env with `num_entrants` trainable seats (an id, a class or an env); None for the contest.
        match_kwargs: its constructor arguments, such as `{"criteria": "It is brief."}`.
        games: number of games, at most 64; None for one contest or, with another match, one game from each seat.
        swap: whether each deal is replayed until every entrant has taken every seat once: with two entrants, games 1,
            3, ... repeat the deal of the previous game with swapped seats. Has no effect on the contest.
        num_entrants: number of entrants, 2 to 8.
        source: items for a match that has `source`: prompts of the contest, motions of debates. Related arguments
            (`fields`, `config`, `bad_rows`) belong in `match_kwargs`.
        split: items to use, `"all"`, `"train"` or `"test"`; for a match that has `split`.

    Raises:
        ValueError: an argument is out of range, or the match has a different number of trainable seats.
    """

    name = "HeadToHead-v0"

    def __init__(
        self,
        match: Match = None,
        match_kwargs: Mapping[str, Any] | None = None,
        games: int | None = None,
        swap: bool = True,
        num_entrants: int = 2,
        source: Any = None,
        split: str = "all",
        **kwargs: Any,
    ):
        self.entrants = entrant_names(num_entrants, most=MOST)
        if match is None:
            match_kwargs = arguments.mapping("match_kwargs", match_kwargs)
            if match_kwargs.get("num_answers", num_entrants) != num_entrants:
                raise ValueError("num_answers is set by num_entrants here: give num_entrants, which is 2 by default")
            match_kwargs = {**match_kwargs, "num_answers": num_entrants}
        games = arguments.whole("games", (1 if match is None else num_entrants) if games is None else games, 1, 64)
        self.swap = arguments.one_of("swap", swap, (True, False)) and match is not None
        turns = [k % num_entrants if self.swap else 0 for k in range(games)]
        self.sitting = [[*self.entrants[turn:], *self.entrants[:turn]] for turn in turns]
        super().__init__(match, match_kwargs, self.sitting, source=source, split=split, **kwargs)

    def play(self, table: Table) -> Rules[dict[str, float]]:
        """Returns the points of each entrant."""
        results = yield from table.gather(
            [
                self.run(table, name, who, f"match_{k - k % len(self.entrants)}" if self.swap else None)
                for k, (name, who) in enumerate(zip(self.matches, self.sitting))
            ]
        )
        points = dict.fromkeys(self.entrants, 0.0)
        for result in self.scored(results):
            for entrant, score in zip(result.entrants, result.scores):
                points[entrant] += score
        points = {entrant: round(total, 9) for entrant, total in points.items()}  # thirds added in any order are equal
        best = [entrant for entrant in self.entrants if points[entrant] == max(points.values())]
        winner = best[0] if len(best) == 1 else None
        table.note(
            records=[result.record() for result in results], points=points, winner=winner, outcome=winner or "draw"
        )
        return points
