"""Two entrants meet: they answer the same prompt and a judge decides, or they play any other env of two seats, twice,
with seats swapped and the same deal; in an env of three seats three entrants meet, three times. Three and more entrants
can answer one prompt, too; then every two answers are compared.

| | |
|---|---|
| seats | `match_0/answer_0`, `match_0/answer_1` (role `answer`), `match_0/judge_0` (role `judge`, not trainable) |
| horizon | 4 turns: two answers at once, two verdicts; with another match, those of all games together |
| sum of rewards | 0; with another match, as there |
| sample action | `"[A]" if info["role"] == "judge" else "It is blue light that air scatters most."` |

## What each seat is told

Answers: the prompt. The judge: the prompt and two answers, A and B, as quoted text; it is asked twice, the second time
anew and with the answers swapped. With `num_entrants` above 2 there is a judge for each pair, and all are asked at
once.

With another `match`, what that env tells. The seats of game `k` are `match_k/...`; all games are played side by side,
and no seat sees anything of another game. `info["entrant"]` says who sits where: `entrant_0` or `entrant_1`.

## Actions

Answers: any text; judges read at most 2000 characters of it. The judge: `[A]` or `[B]`. With another match, as there.

## Rewards

A contest pays 1 to the answer that the judge prefers in both orders and -1 to the other; 0 when the verdicts differ.
With more entrants each gets the mean over its pairs. Another match pays what it pays. Range: -1 to 1 for the contest.

A forfeit counts as a loss of that game alone, and is settled there. A game whose judge is not understood is void:
it pays nothing, and its seats end with `info["trainable"]` False, so that nothing is learned from it; when all are, the
episode ends as `"unscored"`.

## End

After the last game. Infos: `records` (of every game: who sat where, returns, scores, how it ended), `points` by
entrant (1 for a won game, 0.5 for a draw; with more entrants, the share of the others that it has beaten), `winner`
(None when level) and `outcome` (the winner or `"draw"`). Each seat has `score` and `ending` of its game.

## Arguments

One prompt in eight is written by hand, the others are made from templates; a fifth of all, chosen by a hash of their
text, is the split `"test"`. Games of the contest are not swapped, since its seats are alike and judges hear both
orders: each has a prompt of its own. With `source=` they are about your prompts, with
`match_kwargs={"criteria": "..."}` judges are told what counts. The reset options of the match hold in every game; so
do `memory`, `action_format`, `preset`, `invalid_retries`, `invalid_reward` and `invalid_opponent_reward`.

## Scripted players

Answers: `long` and `short`, whose judge is `longer` (A when level); `on_topic` names the keywords of the prompt and
`random` at most two of them. Other judges are `first` (always A) and `on_topic`, the one to train with where no model
judges: it prefers the answer that names more keywords of the prompt, as in `Debate-v0`, and a bare list of them pleases
it. Another match brings its own. The row of `optimal` is the value of Kuhn poker for each seat.

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
        games: how many games, at most 64; None for 1 contest, or for a game of another match from each seat.
        swap: as many games in a row as there are entrants have one deal, and each entrant takes every seat once: games
            1, 3, ... of two have the deal of the game before with seats swapped; not for the contest.
        num_entrants: how many meet, 2 to 8.
        source: what matches are about, for a match that has `source`: prompts of the contest, motions of debates. What
            goes with it (`fields`, `config`, `bad_rows`) goes into `match_kwargs`.
        split: which of the items of the match: `"all"`, `"train"` or `"test"`; for a match that has `split`.

    Raises:
        ValueError: an argument is out of its range, or the match has another number of trainable seats.
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
            if (match_kwargs or {}).get("num_answers", num_entrants) != num_entrants:
                raise ValueError("num_answers is num_entrants here: give num_entrants, which is 2 by default")
            match_kwargs = {**(match_kwargs or {}), "num_answers": num_entrants}
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
        best = [entrant for entrant in self.entrants if points[entrant] == max(points.values())]
        winner = best[0] if len(best) == 1 else None
        table.note(
            records=[result.record() for result in results], points=points, winner=winner, outcome=winner or "draw"
        )
        return points
