"""Sources of problems: the generated word problems, a local file, a Hugging Face data set, or rows in memory.

    problems = open_source("test.jsonl", answer_pattern="####")
    problems[3].question, problems[3].answer

Rows are read on demand. Errors name the file, the line and the field.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from legos_envs import arguments
from legos_envs.table import Table, keyed_generator
from legos_envs.tasks.given_items import without_source
from legos_envs.tasks.problems.word_problems import LEVELS, question_of, word_problem
from legos_envs.tasks.raw_rows import HUB, RawRows, mapping, raw_rows, text_field
from legos_envs.tasks.splits import SPLITS, of_split, part_of

ORDERS = ("seed", "sequential", "random")
WORDS = "words"


class Problem(NamedTuple):
    """A question and its true answer; None if the data has none."""

    question: str
    answer: str | None


class Problems(Protocol):
    """Problems by index, from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Problem: ...


class Words:
    """The generated word problems by seed; `seeds` are those of the first `size` problems of a split."""

    def __init__(self, size: int = 10_000, level: int | None = None, split: str = "all"):
        self.size = arguments.whole("size", size, 1)
        self.level = level if level is None else arguments.one_of("level", level, LEVELS)
        self.seeds = _Seeds(self.size, self.level, arguments.one_of("split", split, SPLITS))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Problem:
        made = word_problem(index, self.level)
        return Problem(made.question, str(made.answer))


class _Seeds(Sequence[int]):
    """The seeds of the first `size` word problems of a split, found on demand."""

    def __init__(self, size: int, level: int | None, split: str):
        self.of = size, level, split

    def __len__(self) -> int:
        return self.of[0]

    def __getitem__(self, place: Any) -> Any:
        return _words_of(*self.of)[place]


class Rows:
    """Problems made from rows, each a mapping of fields to values.

    Args:
        source: the rows that `open_source` found.
        question: name of the field with the question.
        answer: name of the field with the true answer, or None to read no answers.
        answer_pattern: marker in the answer field after which the answer begins, such as `"####"`.
    """

    def __init__(
        self,
        source: RawRows,
        question: str = "question",
        answer: str | None = "answer",
        answer_pattern: str | None = None,
    ):
        self.rows, self.place, self.question = source.rows, source.place, arguments.text("question", question, 200)
        self.answer = None if answer is None else arguments.text("answer", answer, 200)
        self.pattern = None if answer_pattern is None else arguments.text("answer_pattern", answer_pattern, 200)
        self[0]  # detects wrong names now

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Problem:
        row, place = mapping(self.rows[index], self.place(index)), self.place(index)
        question = text_field(row, self.question, place)
        if self.answer is None:
            return Problem(question, None)
        answer = text_field(row, self.answer, place)
        if self.pattern is not None:
            _, mark, answer = answer.rpartition(self.pattern)
            if not mark or not answer.strip():
                raise ValueError(f"{place}: field {self.answer!r} has no answer after {self.pattern!r}")
        return Problem(question, answer.strip())


def open_source(
    source: Any = WORDS,
    *,
    question: str = "question",
    answer: str | None = "answer",
    answer_pattern: str | None = None,
    config: str | None = None,
    split: str | None = None,
    level: int | None = None,
    size: int = 10_000,
) -> Problems:
    """Opens a source of problems; the arguments are those of `Dataset`, but `answer=None` reads no answers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of an unknown kind, is empty, or lacks the fields.
        ImportError: a package is missing; the message says which.
        RuntimeError: a Hugging Face data set cannot be loaded.
    """
    if isinstance(source, str) and source == WORDS:
        without_source(config=config)
        return Words(size, level, split or "train")
    if level is not None:
        raise ValueError(f"level is only for the generated problems, source {WORDS!r}; got {level!r}")
    columns = [name for name in (question, answer) if name]
    return Rows(raw_rows(source, columns, config, split, (WORDS,)), question, answer, answer_pattern)


# --- which problem an episode is about -------------------------------------------------------------------------------


def drawn(problems: Problems, source: Any, split: str | None) -> Sequence[int]:
    """The indices of the problems that episodes use: all, or those of a split of `legos_envs.tasks.splits`.

    A Hugging Face data set has its own splits. Generated problems are generated per split.

    Raises:
        ValueError: the split is unknown or holds no problem.
    """
    if isinstance(problems, Words):
        return problems.seeds
    if split is None or (isinstance(source, str) and source.startswith(HUB)):
        return range(len(problems))
    return of_split(range(len(problems)), split, lambda index: problems[index].question)


@functools.lru_cache(8)
def _words_of(size: int, level: int | None, split: str) -> Sequence[int]:
    """The seeds of the first `size` word problems of a split."""
    if split == "all":
        return range(size)
    return list(islice((n for n in count() if part_of(question_of(n, level)) == split), size))


def choose(table: Table, size: int, order: str, drawn: Sequence[int] | None = None) -> int:
    """The index of an episode's problem, a function of seed and options.

    With `"seed"`, seeds 0 to N - 1 take each of N problems once, in shuffled order, and the next N seeds take them in
    another order. `"sequential"` takes them in order; `"random"` draws. At a nested table the problem is always drawn.

    Args:
        table: the episode's table.
        size: number of problems.
        order: one of `ORDERS`.
        drawn: the indices to choose from without the option; None for all.

    Raises:
        ValueError: option `index` is neither from 0 to `size` - 1 nor in `drawn`.
    """
    some = range(size) if drawn is None else drawn
    given = table.options.get("index")
    if given is not None:
        drawn_here = type(given) is int and given >= size and given in some
        return given if drawn_here else arguments.whole("option index", given, 0, size - 1)
    if order == "random" or table.path:
        return some[int(table.rng.integers(len(some)))]
    epoch, place = divmod(table.env.seed or 0, len(some))
    return some[place if order == "sequential" else int(_shuffled(len(some), epoch)[place])]


@functools.lru_cache(16)
def _shuffled(size: int, epoch: int) -> np.ndarray:
    """The problems in shuffled order, (size,): different in every epoch, the same for all envs."""
    return keyed_generator(epoch, f"order of {size}").permutation(size)
