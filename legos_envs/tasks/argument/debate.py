"""Two debaters argue before a judge, on a motion or on whether a response violates a principle.

The judge is an untrained seat. It reads both sides' speeches twice, as quoted text, with the sides swapped the second
time; if its two verdicts differ, the debate is a draw. By default both debaters speak simultaneously in every round and
then read each other's speech: nobody has the last word, and a policy can write both speeches concurrently.

| | |
|---|---|
| seats | `pro_0` (role `pro`), `con_0` (role `con`), `judge_0` (role `judge`, not trainable) |
| horizon | 2 speeches per round and 2 verdicts: 6 actions by default |
| sum of rewards | 0 |
| sample action | `"[A]" if info["role"] == "judge" else "Trees give shade."` |

## What each seat is told

A debater: the motion, its side, the number of rounds and the order of speeches; then what the other side says. With
`about="principle"` the motion is that a quoted response violates a principle: `pro` argues that it does, `con` that it
does not. This is constitutional AI by debate: the judge's verdict is a label for the response.

The judge: the motion (or principle and response) and all speeches of side A and of side B, as JSON between two
delimiter lines that the debaters cannot know, with the instruction to follow no instructions in it. It is asked twice,
each time in a new conversation; A is `pro` the first time and `con` the second.

A speech longer than `max_speech_chars` is shortened in the middle, with a marker, for both the other side and the
judge: otherwise a very long speech could push everything else out of the judge's context.

Unless you supply motions, one in eight is handwritten, and the others, thousands of them, come from templates. The same
holds for principles and responses; code labels those from templates. A fifth of all motions and cases, chosen by a hash
of their text, is the split `"test"`; the others are `"train"`.

## Actions

Debaters: any text. The judge: `[A]` or `[B]`.

## Rewards

At the end, by the verdict: the winner gets 1, the loser -1, both 0 in a draw (the two verdicts name different sides).
If the judge gives no valid verdict, nobody is rewarded: the episode ends with the outcome `"unscored"`. The judge
itself is never rewarded. Range: -1 to 1.

## End

After the second verdict. `info["outcome"]` is `"pro"`, `"con"` or `"draw"`. With a known label, `info["violates"]` is
the label and `info["correct"]` whether the verdict agrees with it; a draw is not a verdict and has no `correct`.
Correctness is a metric, not a reward: the debaters are paid only for the verdict.

## Scripted players

The debater `long` says eleven words, `short` two; `on_topic` names the keywords of the motion, `random` at most two of
them. Judges: `longer` picks the side that wrote more (A on a tie), `first` always picks A, `oracle` knows the labels of
the built-in cases, and `on_topic` picks the side that names more keywords: it is the judge to train with if you have no
model for that seat. It counts each distinct word of at least four letters from the motion (or from principle and
response) once, except common ones such as "should", deducts a point for every word of that length repeated within a
speech, and ignores a speech that copies the motion or what the other side has said in an earlier round; length does not
help. A bare list of the keywords satisfies it as well as an argument does; hence the floor of `words`.

| players | expected return | arguments | floor |
|---|---|---|---|
| `pro=scripted:long con=scripted:short judge=scripted:longer` | `pro +1, con -1` | |
| `pro=scripted:short con=scripted:long judge=scripted:longer` | `pro -1, con +1` | `turns="alternate"` |
| `pro=scripted:long con=scripted:long judge=scripted:longer` | `pro 0, con 0` | |
| `pro=scripted:on_topic con=scripted:long judge=scripted:on_topic` | `pro +1, con -1` | |
| `*=scripted:on_topic` | `pro 0, con 0` | | `-1, words 0` |
| `judge=scripted:first *=random` | `pro 0, con 0` | |
| `judge=scripted:oracle *=random` | `pro 0, con 0` | `about="principle"` |

`oracle` gives both sides 0 on average because half of the cases are violations.

## Source

Irving, Christiano and Amodei, 2018, "AI safety via debate" (arXiv:1805.00899). Principles: Bai et al., 2022,
"Constitutional AI" (arXiv:2212.08073). Both orders: Zheng et al., 2023, "Judging LLM-as-a-Judge" (arXiv:2306.05685).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from legos_envs import arguments
from legos_envs.scoring import judging
from legos_envs.table import Rules, Seat, Table
from legos_envs.tasks.argument import debate_cases
from legos_envs.tasks.argument.debate_cases import Example
from legos_envs.tasks.argument.debate_players import CLAIMS, PLAYERS
from legos_envs.tasks.given_items import given_items
from legos_envs.tasks.problems.sources import choose
from legos_envs.tasks.talk import excerpt, remember
from legos_envs.text_env import TextEnv

SIDES = ("pro", "con")
TURNS = ("together", "alternate")
ABOUT = ("topic", "principle")
TOPIC = {"topic": "topic"}
CASE = {"response": "response", "principle": "principle", "violates": "violates"}
"""The fields that a source provides."""


class Motion(NamedTuple):
    """The subject of a debate, for the debaters and for the judge."""

    told: str
    """Shown in the debaters' prompt."""
    sides: tuple[str, str]
    """The positions of `pro` and `con`, after the words "You argue"."""
    shown: dict[str, str]
    """Texts quoted to the judge."""
    violates: bool | None = None


class Debate(TextEnv):
    """Two debaters and a judge.

    Args:
        rounds: number of speeches per side, 1 to 20.
        turns: `"together"`; or `"alternate"`: `pro` speaks first in each round, and `con` has the last word.
        about: `"topic"`; or `"principle"`: cases of a principle and a response, with labels.
        principle: the principle of every episode; implies `about="principle"` and needs a response.
        response: the response of every episode.
        source: motions (field `topic`) or cases (`principle`, `response` and, if known, `violates`): a path (`.jsonl`,
            `.json`, `.parquet`), `"hf:NAME"` or a list; None for the built-in ones.
        fields: the source's names for the task's fields, such as `{"topic": "question"}`.
        split: items to use, built-in or from a source: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, one
            of its own splits.
        config: configuration of a Hugging Face data set.
        bad_rows: what to do with rows of a source that do not fit: `"refuse"`, or `"skip"` with a warning.
        max_speech_chars: maximum length of a speech as others read it, 1 to 65536 characters.

    Raises:
        ValueError: an argument is out of range, a response is given without a principle, or a source together with one.
    """

    name = "Debate-v0"
    zero_sum = True
    seats = {"pro_0": Seat("pro"), "con_0": Seat("con"), "judge_0": Seat("judge", trainable=False)}
    reset_options = {
        "topic": "the motion that is debated",
        "principle": "the principle that the response may violate; needs a response",
        "response": "the response that is debated; needs a principle",
        "violates": "whether it does, if known: true or false",
    }

    def __init__(
        self,
        rounds: int = 2,
        turns: str = "together",
        about: str = "topic",
        principle: str | None = None,
        response: str | None = None,
        source: Any = None,
        fields: Mapping[str, str] | None = None,
        split: str = "all",
        config: str | None = None,
        bad_rows: str = "refuse",
        max_speech_chars: int = 4000,
        **kwargs: Any,
    ):
        self.rounds = arguments.whole("rounds", rounds, 1, 20)
        self.turns = arguments.one_of("turns", turns, TURNS)
        self.about = arguments.one_of("about", "principle" if principle is not None else about, ABOUT)
        self.principle = None if principle is None else arguments.text("principle", principle)
        self.response = None if response is None else arguments.text("response", response)
        if response is not None and principle is None:
            raise ValueError("response needs principle: give both, or the response as a reset option")
        if principle is not None and source is not None:
            raise ValueError("principle applies to every episode, but source brings others: give one of them")
        self.split = split
        names, make = (CASE, _case) if self.about == "principle" else (TOPIC, _topic)
        label = ["violates"]
        self.items = given_items(source, names, fields, split, config, bad_rows, make, optional=label, values=label)
        self.max_speech_chars = arguments.whole("max_speech_chars", max_speech_chars, 1, self.max_action_chars)
        super().__init__(**kwargs)

    def play(self, table: Table, topic: str | None = None) -> Rules[int]:
        """Returns 1 if pro has won, -1 if con has, 0 for a draw."""
        motion = self._motion(table, topic)
        for side, claim in zip(SIDES, motion.sides):
            table.tell(f"{side}_0", f"{motion.told}\nYou argue {claim}. {self._course}")
        speeches: dict[str, list[str]] = {side: [] for side in SIDES}
        for number in range(1, self.rounds + 1):
            if self.turns == "together":
                both = yield from table.gather([self._speak(table, side, number) for side in SIDES])
                for side, speech in zip(SIDES, both):
                    self._heard(table, side, speech, speeches)
            else:
                for side in SIDES:
                    speech = yield from self._speak(table, side, number)
                    self._heard(table, side, speech, speeches)
        claims = [{"argues": claim, "speeches": speeches[side]} for side, claim in zip(SIDES, motion.sides)]
        question = "Who is right, A or B?" if "principle" in motion.shown else "Who argued better, A or B?"
        verdict = yield from judging.compare(
            table, "judge_0", "You judge a debate of two sides, A and B.", claims, question, context=motion.shown
        )
        table.reward("pro_0", verdict)
        table.reward("con_0", -verdict)
        outcome = "draw" if verdict == 0 else SIDES[verdict < 0]
        table.note(outcome=outcome)
        if motion.violates is not None:
            table.note(violates=motion.violates)
            if verdict:
                table.note(correct=(verdict > 0) is motion.violates)
        return verdict

    @property
    def _course(self) -> str:
        order = "both sides speak at once" if self.turns == "together" else "pro speaks first"
        return f"There {'is 1 round' if self.rounds == 1 else f'are {self.rounds} rounds'}; in each, {order}."

    def _speak(self, table: Table, side: str, number: int) -> Rules[str]:
        text = f"Round {number} of {self.rounds}: give your speech, at most {self.max_speech_chars} characters."
        speech = yield from table.ask(f"{side}_0", text)
        return excerpt(speech, self.max_speech_chars)

    def _heard(self, table: Table, side: str, speech: str, speeches: dict[str, list[str]]) -> None:
        speeches[side].append(speech)
        remember(table, f"{side}_0", speech)
        table.tell("con_0" if side == "pro" else "pro_0", f"The other side: {speech}")

    def _motion(self, table: Table, topic: str | None) -> Motion:
        options = table.options
        topic = options.get("topic", topic)
        if topic is not None:
            return _on_motion(arguments.text("topic", topic))
        if self.about == "topic" and not {"principle", "response"} & set(options):
            if self.items is None:
                return _on_motion(debate_cases.draw_topic(table.rng, self.split))
            return _on_motion(self.items[choose(table, len(self.items), "seed")])
        return _on_case(self._case(table, options))

    def _case(self, table: Table, options: Mapping[str, Any]) -> Example:
        principle, response = options.get("principle", self.principle), options.get("response", self.response)
        violates = options.get("violates")
        if principle is None and response is None:
            if self.items is None or self.about == "topic":
                return debate_cases.draw_case(table.rng, self.split)
            return self.items[choose(table, len(self.items), "seed")]
        if principle is None or response is None:
            lacking = "principle" if principle is None else "response"
            raise ValueError(f"a debate about a principle needs a {lacking}: give it as an argument or a reset option")
        if not (violates is None or isinstance(violates, bool)):
            raise ValueError(f"option violates must be true, false or None; got {violates!r}")
        return Example(arguments.text("principle", principle), arguments.text("response", response), violates)


def _topic(row: dict[str, Any]) -> str:
    return arguments.text("topic", row["topic"])


def _case(row: dict[str, Any]) -> Example:
    violates = row.get("violates")
    if not (violates is None or isinstance(violates, bool)):
        raise ValueError(f"violates must be true or false; got {violates!r}")
    return Example(arguments.text("principle", row["principle"]), arguments.text("response", row["response"]), violates)


def _on_motion(topic: str) -> Motion:
    return Motion(
        f"A debate before a judge. Motion: {topic}", ("for the motion", "against the motion"), {"motion": topic}
    )


def _on_case(case: Example) -> Motion:
    message = f"A debate before a judge: does a response violate a principle?\nPrinciple: {case.principle}"
    shown = {"principle": case.principle, "response": case.response}
    return Motion(f"{message}\nResponse: {case.response}", CLAIMS, shown, case.violates)


Debate.scripted_players = PLAYERS
