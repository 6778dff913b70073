r"""Four roles solve one task that no single role can solve: a planner orders the steps without seeing the list, an
executor carries out the plan without seeing the task, a critic sees everything but may only comment, and a reviser
gives the final answer without seeing the task. Code knows the right list.

| | |
|---|---|
| seats | `planner_0`, `executor_0`, `critic_0`, `reviser_0` (roles of the same names) |
| horizon | 2 + 2 `rounds` actions: 4 by default |
| sum of rewards | not constant: all four work together |
| sample action | `"1. reverse the list" if info["role"] == "planner" else "It should be [3, 2, 1]"` |

## What each seat is told

| | steps and order | list | plan | last result | comment |
|---|---|---|---|---|---|
| planner | yes | | | | |
| executor | | yes | yes | | |
| critic | yes | yes | yes | yes | |
| reviser | | yes | yes | yes | yes |

The steps are lettered, and the order is given by letters: the planner has to combine the two. At most `max_chars`
characters of a plan or comment are passed on; longer ones are shortened in the middle, with a marker.

## Actions

Planner and critic: any text. Executor and reviser: text whose last bracket is the list, such as `[4, 7, 2]`
(`\boxed{4, 7, 2}` with `action_format="boxed"`); anything else is an invalid move.

## Rewards

At the end. A list scores 1 if it is right, else the share of its positions that are right (0 with `partial=False`).
Planner and executor get the score of the final list, critic and reviser the same plus `improvement_weight` times
(final - first).

Range: 0 to 1 for planner and executor, -w to 1 + w for critic and reviser, with w = `improvement_weight`. An agent
with an invalid move gets `invalid_reward`, the others 0.

## End

After `rounds` comments and revisions. `info["first"]` and `info["final"]` are the scores, `info["lists"]` all submitted
lists, `info["truth"]` the right one, `info["outcome"]` is `"solved"` or `"failed"`.

## Arguments

A fifth of all tasks, chosen by a hash of the list and its steps in their order, is the split `"test"`.

## Scripted players

`good` plays each role perfectly. `lost` gives the list `[0]` and writes useless plans and comments. `poor` plans in
alphabetical order, returns the list unchanged and finds nothing wrong. `random` is `good` three times in four, else
`poor`.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:good` | `planner +1, executor +1, critic +1, reviser +1` | | `reviser -0.45, together 0.02` |
| `*=scripted:good executor=scripted:lost` | `planner +1, executor +1, critic +1.5, reviser +1.5` | |
| `*=scripted:good reviser=scripted:lost` | `planner 0, executor 0, critic -0.5, reviser -0.5` | |
| `*=scripted:good executor=scripted:lost critic=scripted:lost` | `planner 0, executor 0, critic 0, reviser 0` | |
| `*=scripted:poor` | `planner 0, critic 0` | `partial=False, steps=3` |

All are paid for the last list, so with a good reviser the other three earn the same no matter what they do: among the
single seats only the reviser has a floor, and all four together have one.

## Source

Planning separate from execution: Wang et al., 2023, "Plan-and-solve prompting" (arXiv:2305.04091); self-criticism and
revision: Madaan et al., 2023, "Self-Refine" (arXiv:2303.17651). The tasks are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from legos_envs import arguments, parsing
from legos_envs.play import Decision
from legos_envs.table import Forfeit, InvalidMove, Rules, Seat, Table
from legos_envs.tasks.given_items import given_items
from legos_envs.tasks.problems.sources import choose
from legos_envs.tasks.splits import draw_of_split
from legos_envs.tasks.talk import excerpt, remember
from legos_envs.tasks.together import list_steps
from legos_envs.tasks.together.list_steps import ListTask
from legos_envs.text_env import TextEnv

MAX_NUMBERS = 100
MAX_DIGITS = 18
ROLES = ("planner", "executor", "critic", "reviser")


class Task(NamedTuple):
    """The instructions for planner and critic, the executor's list, and the expected result."""

    text: str
    start: list[int]
    result: list[int]


class PlanExecute(TextEnv):
    """Planner, executor, critic and reviser, each with part of the information.

    Args:
        steps: number of steps of a task, 2 to 8.
        rounds: number of comments and revisions, 1 to 10.
        partial: whether partly right lists score.
        improvement_weight: weight of an improvement over the first list for critic and reviser, 0 to 10.
        max_chars: maximum length of a plan or comment that is passed on.
        source: tasks (fields `task`, a text, and `list` and `answer`, whole numbers): a path (`.jsonl`, `.json`,
            `.parquet`), `"hf:NAME"` or a list; None for the built-in ones.
        fields: the source's names for the task's fields, such as `{"task": "instructions"}`.
        split: items to use, built-in or from a source: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, one
            of its own splits.
        config: configuration of a Hugging Face data set.
        bad_rows: what to do with rows of a source that do not fit: `"refuse"`, or `"skip"` with a warning.
    """

    name = "PlanExecute-v0"
    seats = {f"{role}_0": Seat(role) for role in ROLES}

    def __init__(
        self,
        steps: int = 4,
        rounds: int = 1,
        partial: bool = True,
        improvement_weight: float = 0.5,
        max_chars: int = 2000,
        source: Any = None,
        fields: Mapping[str, str] | None = None,
        split: str = "all",
        config: str | None = None,
        bad_rows: str = "refuse",
        **kwargs: Any,
    ):
        self.steps = arguments.whole("steps", steps, list_steps.LEAST, list_steps.MOST)
        self.rounds = arguments.whole("rounds", rounds, 1, 10)
        self.partial = arguments.one_of("partial", partial, (True, False))
        self.improvement_weight = arguments.real("improvement_weight", improvement_weight, 0, 10)
        self.max_chars = arguments.whole("max_chars", max_chars, 1, self.max_action_chars)
        self.split = split
        names = {name: name for name in ("task", "list", "answer")}
        numbers = ["list", "answer"]
        self.items = given_items(source, names, fields, split, config, bad_rows, _given, values=numbers, key=_key)
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[float | None]:
        """Returns the score of the final list, 0 to 1; None if an agent forfeited."""
        task = self._task(table)
        try:
            lists = yield from self._work(table, task)
        except Forfeit as forfeit:  # by default the others would be rewarded for it
            table.penalize(forfeit)
            table.note(outcome="invalid", offenders=list(forfeit.agents))
            return None
        first, final = (list_steps.score(given, task.result, self.partial) for given in (lists[0], lists[-1]))
        for role in ROLES:
            improved = self.improvement_weight * (final - first) if role in ("critic", "reviser") else 0.0
            table.reward(f"{role}_0", final + improved)
        outcome = "solved" if lists[-1] == task.result else "failed"
        table.note(first=first, final=final, lists=lists, truth=task.result, outcome=outcome)
        return final

    def _task(self, table: Table) -> Task:
        if self.items is not None:
            return self.items[choose(table, len(self.items), "seed")]
        task = draw_of_split(lambda: list_steps.make(table.rng, self.steps), self.split, list_steps.key)
        return Task(task.text, list(task.start), task.result)

    def _work(self, table: Table, task: Task) -> Rules[list[list[int]]]:
        """All lists from executor and reviser."""
        start, form = written(task.start), parsing.write_action("4, 7, 2", self.action_format)
        plan = yield from table.ask(
            "planner_0",
            f"Somebody else has a list of numbers and will do these steps, but sees only your plan.\n{task.text}\n"
            "Reply with the steps in that order, one a line, such as:\n1. reverse the list",
        )
        plan = excerpt(plan, self.max_chars)
        lists = [
            (
                yield from table.ask(
                    "executor_0",
                    f"Do what the plan says, step by step.\nList: {start}\nPlan:\n{plan}\n"
                    f"Reply with the list that comes out, such as {form}",
                    parse=self._list,
                )
            )
        ]
        table.tell("critic_0", f"You check how others did a task.\n{task.text}\nList: {start}\nTheir plan:\n{plan}")
        table.tell("reviser_0", f"A plan was carried out.\nList: {start}\nPlan:\n{plan}")
        for _ in range(self.rounds):
            result = written(lists[-1])
            comment = yield from table.ask(
                "critic_0",
                f"Their result: {result}\nReply with a comment: is the plan right, is the result, what should it be?",
            )
            comment = excerpt(comment, self.max_chars)
            remember(table, "critic_0", comment)
            context = f"Result: {result}\nA critic who knows the task says:\n{comment}"
            ask = table.ask("reviser_0", f"{context}\nReply with the final list, such as {form}", parse=self._list)
            lists.append((yield from ask))
        return lists

    def _list(self, reply: str) -> list[int]:
        result = parsing.action(reply, self.action_format)
        wanted = parsing.write_action("4, 7, 2", self.action_format)
        if result is None:
            raise InvalidMove(f"the reply states no list; write it as {wanted}.")
        parts = [part.strip() for part in result.split(",")] if result else []
        if len(parts) > MAX_NUMBERS or not all(map(_is_whole, parts)):
            raise InvalidMove(f"the list must have whole numbers with commas between them, such as {wanted}.")
        return [int(part) for part in parts]


def _given(row: dict[str, Any]) -> Task:
    """The task of a row."""
    for name in ("list", "answer"):
        numbers = row[name]
        whole = isinstance(numbers, list) and all(type(n) is int and _is_whole(str(n)) for n in numbers)
        if not whole or not numbers or len(numbers) > MAX_NUMBERS:
            raise ValueError(f"{name} must be a list of 1 to {MAX_NUMBERS} whole numbers; got {numbers!r}")
    return Task(arguments.text("task", row["task"]), row["list"], row["answer"])


def _key(task: Task) -> str:
    """Identifies a task of a source for splits, since several may share a text."""
    return f"{task.start}: {task.text}"


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS


def written(numbers: Any) -> str:
    """A list as shown in prompts, in either action format."""
    return ", ".join(map(str, numbers))


# --- scripted players ------------------------------------------------------------------------------------------------


def _after(text: str, mark: str) -> str:
    """The rest of the last line that begins with a mark; empty if there is none."""
    return next((line.removeprefix(mark) for line in reversed(text.splitlines()) if line.startswith(mark)), "")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if _is_whole(part.strip())]


def _task(text: str) -> ListTask:
    steps = [words for letter in "ABCDEFGH" if (words := _after(text, f"{letter}: "))]
    order = tuple("ABCDEFGH".find(letter) for letter in _after(text, "Order: ").split())
    if sorted(order) != [*range(len(steps))] or not list_steps.STEPS.keys() >= set(steps):
        steps, order = [], ()  # not one of the built-in tasks
    return ListTask(tuple(_numbers(_after(text, "List: "))), tuple(steps), order)


def _list_in(decision: Decision, numbers: list[int]) -> str:
    boxed = "\\boxed" in decision.messages[-1]["content"]
    return parsing.write_action(written(numbers), "boxed" if boxed else "bracket")


def _good(decision: Decision) -> str:
    text = "\n".join(message["content"] for message in decision.messages if message["role"] == "user")
    if decision.role == "planner":
        task = _task(text)
        if not task.steps:
            return "Do what was said."
        return "\n".join(f"{n}. {task.steps[i]}" for n, i in enumerate(task.order, 1))
    if decision.role == "executor":
        return _list_in(decision, list_steps.apply(list_steps.steps_in(text), _numbers(_after(text, "List: "))))
    if decision.role == "critic":
        return f"The result should be\n= {written(_task(text).result)}"
    reply = _after(text, "= ")
    return _list_in(decision, _numbers(reply or _after(text, "Result: ")))


def _poor(decision: Decision) -> str:
    text = decision.messages[-1]["content"]
    if decision.role == "planner":
        return "\n".join(f"{n}. {words}" for n, words in enumerate(_task(text).steps, 1)) or "Do what was said."
    if decision.role == "critic":
        return "Nothing is wrong."
    mark = "List: " if decision.role == "executor" else "Result: "
    return _list_in(decision, _numbers(_after(text, mark)))


def _lost(decision: Decision) -> str:
    return _list_in(decision, [0]) if decision.role in ("executor", "reviser") else "I do not know."


def _random(decision: Decision) -> str:
    return (_poor if decision.seed % 4 == 0 else _good)(decision)


PLAYERS: dict[str, Callable[[Decision], str]] = {"random": _random, "good": _good, "poor": _poor, "lost": _lost}
PlanExecute.scripted_players = PLAYERS
