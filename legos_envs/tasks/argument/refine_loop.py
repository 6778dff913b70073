"""A generator drafts, a critic comments, the generator revises: both are paid for the quality of the last draft.

By default the tasks are short texts with demands that code checks ("contains the word", "has at most 20 words"), so
that the loop can be trained without a judge. With `domain="open"` the tasks are open-ended, and a judge, an untrained
seat, grades the first and the last draft; with `check=`, your own function does. Without a critic (`rounds=0`) it is
plain training on prompts whose answers are graded, by your own `criteria` if given.

| | |
|---|---|
| seats | `generator_0`, `critic_0` (roles `generator`, `critic`); with a judge also `judge_0` (not trainable) |
| horizon | 1 + 2 `rounds` actions: 3 by default; a judge adds 2 per criterion, or with `good_enough` 1 per draft |
| sum of rewards | not constant: generator and critic work together |
| sample action | `"Use fewer words." if info["role"] == "critic" else "Once upon a time. The end."` |

## What each seat is told

The generator: the task; then, each round, the critic's comment. The critic: the task, and each draft. The judge: the
task and one draft, quoted, in a new conversation for each draft; it is not told which draft it reads and sees no
comment, so the order of grading cannot matter. Nobody learns the grades before the end. With several `criteria` it
grades a draft by one criterion at a time, each in a new conversation.

At most `max_chars` characters of a draft or comment are passed on; longer ones are shortened in the middle, with a
marker. Code checks the whole draft.

## Actions

Generator and critic: any text. The judge: a grade from `[0]` to `[10]`.

## Rewards

At the end. A draft's quality is from 0 to 1: the share of demands that it meets, the result of `check`, or the grade /
10 (with several criteria, the mean). The generator gets the quality of the last draft. The critic gets that plus
`improvement_weight` times (last - first). With `share_improvement=True` the generator gets this sum too; by default it
does not, because a generator paid for improvement earns most when its first draft is bad.

Range: 0 to 1 for the generator, -w to 1 + w for whoever is paid for improvement, with w = `improvement_weight`. An
agent that says nothing gets `invalid_reward`, and the other gets 0: in a shared task nobody gains from another's
invalid move. If a judge gives no valid grade, the episode ends with the outcome `"unscored"` and pays nothing.

## End

After `rounds` revisions; with `good_enough`, as soon as a draft has that quality. `info["first"]` and `info["final"]`
are the two qualities, `info["drafts"]` is the number of drafts; `info["outcome"]` is `"improved"`, `"same"` or
`"worse"`.

## Arguments

To train on your own prompts with answers graded by a judge: `domain="open", rounds=0, source="prompts.jsonl",
criteria=[...]`; rows may have their own `criteria`.

A `check` takes the arguments `task` and `text`, passed by name, or just one of them.

A fifth of all tasks, chosen by a hash of their text, is the split `"test"`. One in eight of the open tasks is
handwritten, the others come from templates.

## Scripted players

For checked tasks: generators `good` (meets all demands), `half` (every other one), `poor` (none), `improver` (none,
then all). For open tasks the same generators write longer or shorter texts, and `on_topic` names the keywords of the
task. Judges: `longer` gives a point for every ten words, at most 10; `on_topic` grades the share of the task's keywords
that the text names, minus repeated words (a bare list satisfies it too); `kind` always gives 10. `random` plays all
seats.

| players | expected return | arguments | floor |
|---|---|---|---|
| `generator=scripted:good critic=random` | `generator +1, critic +1` | | `generator +0.33, together +0.33` |
| `generator=scripted:poor critic=random` | `generator 0, critic 0` | `demands=8` |
| `generator=scripted:improver critic=random` | `generator +1, critic +1.5` | |
| `generator=scripted:improver critic=random` | `generator +1.5, critic +1.5` | `share_improvement=True` |
| `judge=scripted:kind *=random` | `generator +1, critic +1` | `domain="open"` |
| `*=scripted:on_topic` | `generator +1` | `domain="open", rounds=0` |
| `critic=random *=scripted:on_topic` | `generator +1` | `domain="open"` | `generator +0.05, together +0.05, words +1` |
| `generator=scripted:improver critic=random judge=scripted:longer` | `generator +1, critic +1.5` | `domain="open"` |

Many texts meet a demand such as "has at most 20 words", hence the floor of 0.33. The critic has no floor: paired with a
good generator, it earns the same no matter what it says.

## Source

Madaan et al., 2023, "Self-Refine" (arXiv:2303.17651). Tasks checked by code: Zhou et al., 2023, "Instruction-following
evaluation for large language models" (arXiv:2311.07911).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from legos_envs import arguments
from legos_envs.scoring import Rubric, judging
from legos_envs.table import Forfeit, Rules, Seat, Table
from legos_envs.tasks import checked_texts, open_prompts
from legos_envs.tasks.argument.refine_players import DRAFT, PLAYERS, TEXT
from legos_envs.tasks.given_items import given_items
from legos_envs.tasks.problems.sources import choose
from legos_envs.tasks.splits import draw_of_split
from legos_envs.tasks.talk import excerpt, remember
from legos_envs.text_env import TextEnv

DOMAINS = ("checked", "open")
TASKS = (
    "Explain in a few sentences why the sky is blue.",
    "Describe a bicycle to somebody who has never seen one.",
    "Write a polite letter to a neighbour whose dog barks at night.",
    "Tell a story of five sentences about a lost key.",
    "Explain what a variable is to a ten-year-old.",
    "Write the opening of a detective novel set in a lighthouse.",
    "Give three reasons for and three against living in a city.",
    "Write instructions for making tea without using numbers.",
    "Summarise the rules of a game you know in under 80 words.",
    "Write a short speech for the opening of a village library.",
    "Explain how a lock on a canal works.",
    "Describe the sound of rain without using the word rain.",
    "Write a product description for a very ordinary spoon.",
    "Explain compound interest with one worked example.",
    "Write a dialogue in which two people agree without saying yes.",
    "Plan a day in the mountains for a family with small children.",
    "Write a poem of four lines about an empty station.",
    "Explain why leaves change colour in autumn.",
    "Write a clear error message for a form whose date is in the past.",
    "Compare trains and buses for a journey of two hours.",
)
Checker = Callable[..., Any]


class RefineLoop(TextEnv):
    """Generator and critic work on a text; code or a judge grades it.

    Args:
        rounds: number of comments and revisions, 0 to 20; with 0 there is no critic.
        domain: `"checked"` (tasks checked by code) or `"open"` (tasks of any kind); None means `"open"` if there is a
            `check`, else `"checked"`.
        check: a function or `Rubric` that returns the quality of a draft, 0 to 1, in place of a judge; for open tasks.
        criteria: criteria for a judge, one text or several, such as `["It is polite.", "It answers the question."]`.
        demands: number of demands of a checked task, 1 to 8.
        improvement_weight: weight of an improvement in the critic's reward, at least 0.
        share_improvement: whether the generator is paid for improvement too.
        good_enough: a quality in (0, 1] at which the loop stops.
        max_chars: maximum length of a draft or comment as others read it.
        source: open tasks (field `task` and optionally `criteria`): a path (`.jsonl`, `.json`, `.parquet`), `"hf:NAME"`
            or a list; None for the built-in ones.
        fields: the source's names for the task's fields, such as `{"task": "prompt"}`.
        split: items to use, built-in or from a source: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, one
            of its own splits.
        config: configuration of a Hugging Face data set.
        bad_rows: what to do with rows of a source that do not fit: `"refuse"`, or `"skip"` with a warning.

    Raises:
        ValueError: an argument is out of range, or `check` is given for checked tasks.
        TypeError: `check` is not a function.
    """

    name = "RefineLoop-v0"
    reset_options = {"task": "the generator's task, for open tasks"}

    def __init__(
        self,
        rounds: int = 1,
        domain: str | None = None,
        check: Checker | Rubric | None = None,
        criteria: str | Sequence[str] | None = None,
        demands: int = 4,
        improvement_weight: float = 0.5,
        share_improvement: bool = False,
        good_enough: float | None = None,
        max_chars: int = 8000,
        source: Any = None,
        fields: Mapping[str, str] | None = None,
        split: str = "all",
        config: str | None = None,
        bad_rows: str = "refuse",
        **kwargs: Any,
    ):
        self.rounds = arguments.whole("rounds", rounds, 0, 20)
        self.domain = arguments.one_of("domain", domain if domain is not None else DOMAINS[check is not None], DOMAINS)
        if check is not None and self.domain == "checked":
            raise ValueError("check is for open tasks; tasks of domain 'checked' have their own checks")
        if check is not None and not callable(check):
            raise TypeError(f"check must be a function or a Rubric; got {check!r}")
        self.rubric = check if check is None or isinstance(check, Rubric) else Rubric([check])
        self.demands = arguments.whole("demands", demands, 1, len(checked_texts.CONDITIONS))
        self.improvement_weight = arguments.real("improvement_weight", improvement_weight, 0)
        self.share_improvement = arguments.flag("share_improvement", share_improvement)
        self.good_enough = None if good_enough is None else arguments.real("good_enough", good_enough, 1e-9, 1)
        self.max_chars = arguments.whole("max_chars", max_chars, 1, self.max_action_chars)
        if source is not None and self.domain == "checked":
            raise ValueError("source is for open tasks; tasks of domain 'checked' are generated by code")
        self.split = split
        names, own = {"task": "task", "criteria": "criteria"}, ["criteria"]
        self.items = given_items(source, names, fields, split, config, bad_rows, _open_task, optional=own, values=own)
        self.judged = self.domain == "open" and check is None
        if criteria is not None and not self.judged:
            raise ValueError("criteria are for a judge: use domain='open' without a check")
        self.criteria = judging.criteria(criteria)
        self.seats = {"generator_0": Seat("generator")}
        if self.rounds:
            self.seats["critic_0"] = Seat("critic")
        if self.judged:
            self.seats["judge_0"] = Seat("judge", trainable=False)
        longest = max([len(self.criteria), *[len(own) for _, own in self.items or ()]]) or 1  # criteria of one draft
        graded = min(self.rounds + 1, 2) if self.good_enough is None else self.rounds + 1
        self.max_asks = 1 + 2 * self.rounds + self.judged * graded * longest
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[float | None]:
        """Returns the quality of the last draft, 0 to 1; None if an agent forfeited."""
        task, quality = self._task(table)
        try:
            drafts, first, final = yield from self._work(table, task, quality)
        except Forfeit as forfeit:  # by default the other agent would be rewarded for it
            table.penalize(forfeit)
            table.note(outcome="invalid", offenders=list(forfeit.agents))
            return None
        improvement = self.improvement_weight * (final - first)
        table.reward("generator_0", final + improvement * self.share_improvement)
        if self.rounds:
            table.reward("critic_0", final + improvement)
        outcome = "improved" if final > first else "worse" if final < first else "same"
        table.note(first=first, final=final, drafts=drafts, outcome=outcome)
        return final

    def _work(self, table: Table, task: str, quality: Checker) -> Rules[tuple[int, float, float]]:
        """The loop: returns the number of drafts, and the quality of the first and of the last."""
        if self.rounds:
            table.tell("critic_0", f"You help to improve a text. The task of its author:\n{task}")
        table.tell("generator_0", task)
        text = yield from table.ask("generator_0", DRAFT if self.rounds else TEXT)
        grades = [] if self.good_enough is None else [(yield from quality(table, text))]
        drafts = [text]
        while len(drafts) <= self.rounds and not self._enough(grades):
            shown = excerpt(text, self.max_chars)
            table.tell("critic_0", f"Draft {len(drafts)}:\n{shown}")
            comment = yield from table.ask("critic_0", "Reply with a comment: what should change?")
            remember(table, "generator_0", shown)
            remember(table, "critic_0", comment)
            table.tell("generator_0", f"The critic: {excerpt(comment, self.max_chars)}")
            text = yield from table.ask("generator_0", "Reply with your new draft, nothing else.")
            drafts.append(text)
            if self.good_enough is not None:
                grades.append((yield from quality(table, text)))
        if not grades:
            first = yield from quality(table, drafts[0])
            grades = [first, first if len(drafts) == 1 else (yield from quality(table, drafts[-1]))]
        return len(drafts), grades[0], grades[-1]

    def _enough(self, grades: list[float]) -> bool:
        return self.good_enough is not None and grades[-1] >= self.good_enough

    def _task(self, table: Table) -> tuple[str, Checker]:
        """The task as shown to players, and the rules that determine the quality of a draft."""
        given = table.options.get("task")
        if self.domain == "checked":
            if given is not None:
                raise ValueError("option task needs open tasks: domain='open', or your own check")
            draw = partial(checked_texts.draw, table.rng, self.demands)
            demands = draw_of_split(draw, self.split, checked_texts.put)
            return checked_texts.put(demands), partial(_shared, demands)
        criteria = self.criteria
        if given is not None:
            task = arguments.text("task", given)
        elif self.items is None:
            task = open_prompts.draw(table.rng, TASKS, self.split)
        else:
            task, own = self.items[choose(table, len(self.items), "seed")]
            criteria = own or criteria
        return task, partial(self._judged, task, criteria) if self.judged else partial(self._checked, task)

    def _judged(self, task: str, criteria: Sequence[str], table: Table, text: str) -> Rules[float]:
        shown, context = excerpt(text, self.max_chars), {"task": task}
        grades = []
        for question in [f"How well is this met? {text}" for text in criteria] or [QUESTION]:
            grade = judging.grade(table, "judge_0", "You grade a text.", shown, question, context=context)
            grades.append((yield from grade))
        return sum(grades) / len(grades)

    def _checked(self, task: str, table: Table, text: str) -> Rules[float]:
        assert self.rubric is not None
        value = self.rubric(task=task, text=text).total
        if not 0 <= value <= 1:
            raise ValueError(f"check must return a number from 0 to 1; it returned {value!r} for {text[:60]!r}")
        return value
        yield  # rules are generators even if they ask nobody


QUESTION = "How well does the text do what the task wants?"


def _open_task(row: dict[str, Any]) -> tuple[str, list[str]]:
    return arguments.text("task", row["task"]), judging.criteria(row.get("criteria"))


def _shared(demands: tuple[checked_texts.Demand, ...], table: Table, text: str) -> Rules[float]:
    return checked_texts.share(demands, text)
    yield


RefineLoop.scripted_players = PLAYERS
