"""Sources of problems: the generated word problems, a local file, a Hugging Face data set, or rows in memory.

    problems = open_source("test.jsonl", answer_pattern="####")
    problems[3].question, problems[3].answer

All rows are checked when a source is opened. Errors name the file, the line and the field.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from legos_envs import arguments
from legos_envs.scoring import answers
from legos_envs.table import Table, keyed_generator
from legos_envs.tasks.given_items import MOST, given_items, without_source
from legos_envs.tasks.problems.word_problems import LEVELS, question_of, word_problem
from legos_envs.tasks.raw_rows import HUB, DataSetUnavailable
from legos_envs.tasks.rows import BAD_ROWS
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
        self.size = arguments.whole("size", size, 1, 1_000_000_000)
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


def open_source(
    source: Any = WORDS,
    *,
    question: str = "question",
    answer: str | None = "answer",
    fields: Mapping[str, str] | None = None,
    answer_pattern: str | None = None,
    config: str | None = None,
    split: str | None = None,
    bad_rows: str = "refuse",
    level: int | None = None,
    size: int = 10_000,
) -> Problems:
    """Opens a source of problems; the arguments are those of `Dataset`, but `answer=None` reads no answers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of an unknown kind or empty, or a row does not fit and `bad_rows` is not `"skip"`.
        ImportError: a package is missing; the message says which.
        DataSetUnavailable: a Hugging Face data set cannot be loaded.
    """
    arguments.one_of("bad_rows", bad_rows, BAD_ROWS)
    if isinstance(source, str) and source == WORDS:
        without_source(config=config, fields=fields)
        return Words(size, level, split or "train")
    if level is not None:
        raise ValueError(f"level is only for the generated problems, source {WORDS!r}; got {level!r}")
    names = {"question": arguments.text("question", question, 200)}
    if answer is not None:
        names["answer"] = arguments.text("answer", answer, 200)
    pattern = None if answer_pattern is None else arguments.text("answer_pattern", answer_pattern, 200)
    called = names.get("answer")
    if isinstance(fields, Mapping):
        called = fields.get("answer", called)
        for name, field in names.items():
            if field != name and fields.get(name, field) != field:
                raise ValueError(f"give either {name} or fields; got {name}={field!r} and fields={dict(fields)!r}")
    hub = isinstance(source, str) and source.startswith(HUB)
    own_split = (split or "train") if hub else "all"  # `drawn` takes the split of other sources
    make = partial(_problem, pattern=pattern, field=called)
    try:
        items = given_items(source, names, fields, own_split, config, bad_rows, make, built_in=(WORDS,))
    except DataSetUnavailable as error:
        raise DataSetUnavailable(
            f"{error}; or use generated problems: source={WORDS!r}, of which level=0 are the easiest"
        ) from error
    if items is None:
        raise ValueError(f"source must be {WORDS!r}, a file, 'hf:NAME' or a sequence of mappings; got None")
    return items


def _problem(row: Mapping[str, str], pattern: str | None, field: str | None) -> Problem:
    r"""The problem of a row; the answer begins after `pattern` in the field named `field`. Without a pattern it is what
    a worked answer marks as its result (`#### 72`, `\boxed{72}`), else the whole field.
    """
    answer = row.get("answer")
    if answer is None:
        return Problem(row["question"], None)
    if pattern is not None:
        _, mark, answer = answer.rpartition(pattern)
        if not mark or not answer.strip():
            raise ValueError(f"field {field!r} has no answer after {pattern!r}")
    else:
        answer = answers.stated_answer(answer) or answer
    return Problem(row["question"], answer.strip())


# --- which problem an episode is about -------------------------------------------------------------------------------


_drawn: dict[tuple[int, str], tuple[Problems, Sequence[int]]] = {}
"""Splits of problems by identity, which are kept with them, so that no other problems get their identity."""


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
    known = _drawn.get((id(problems), split))
    if known is None or known[0] is not problems:  # else every env of a run would hash every question
        if len(_drawn) >= MOST:
            _drawn.pop(next(iter(_drawn)))
        known = problems, of_split(range(len(problems)), split, lambda index: problems[index].question)
        _drawn[id(problems), split] = known
    return known[1]


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
