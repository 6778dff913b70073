"""Where problems come from: the generated word problems, a local file, a Hugging Face data set, or rows in memory.

    problems = open_source("test.jsonl", answer_pattern="####")
    problems[3].question, problems[3].answer

Rows are read when they are asked for. An error names the file, the line and the field.
"""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from legos_envs import arguments
from legos_envs.table import Table, keyed_generator
from legos_envs.tasks.problems.word_problems import LEVELS, word_problem
from legos_envs.tasks.splits import of_split

ORDERS = ("seed", "sequential", "random")
SUFFIXES = (".jsonl", ".json", ".parquet")
WORDS = "words"
HUB = "hf:"


class Problem(NamedTuple):
    """A question and its true answer; None where the data has none."""

    question: str
    answer: str | None


class Problems(Protocol):
    """Problems by index, from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Problem: ...


class Words:
    """The generated word problems of seeds 0 to `size` - 1."""

    def __init__(self, size: int = 10_000, level: int | None = None):
        self.size = arguments.whole("size", size, 1)
        self.level = level if level is None else arguments.one_of("level", level, LEVELS)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Problem:
        made = word_problem(index, self.level)
        return Problem(made.question, str(made.answer))


class Rows:
    """Problems made from rows, each a mapping of fields to values.

    Args:
        rows: anything with a length that gives a mapping for an index.
        where: what errors call the rows; `{index}` stands for the index.
        question: the field with the question.
        answer: the field with the true answer, or None to read no answers.
        answer_pattern: in the answer field, what the answer stands behind, such as `"####"`.
    """

    def __init__(
        self,
        rows: Any,
        where: str,
        question: str = "question",
        answer: str | None = "answer",
        answer_pattern: str | None = None,
    ):
        self.rows, self.where, self.question = rows, where, arguments.text("question", question, 200)
        self.answer = None if answer is None else arguments.text("answer", answer, 200)
        self.pattern = None if answer_pattern is None else arguments.text("answer_pattern", answer_pattern, 200)
        if not len(rows):
            raise ValueError(f"{self.where.partition(',')[0]} has no rows")
        self[0]  # names that do not fit are found now

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Problem:
        row = self.rows[index]
        place = self.rows.where(index) if hasattr(self.rows, "where") else self.where.format(index=index)
        if not isinstance(row, Mapping):
            raise ValueError(f"{place}: a row must be an object with fields; got {type(row).__name__}")
        question = _field(row, self.question, place)
        if self.answer is None:
            return Problem(question, None)
        answer = _field(row, self.answer, place)
        if self.pattern is not None:
            _, mark, answer = answer.rpartition(self.pattern)
            if not mark or not answer.strip():
                raise ValueError(f"{place}: field {self.answer!r} has no answer behind {self.pattern!r}")
        return Problem(question, answer.strip())


def _field(row: Mapping[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        has = f"got {value!r}" if name in row else f"the row has {', '.join(map(repr, row)) or 'no fields'}"
        raise ValueError(f"{place}: field {name!r} must be text or a number; {has}")
    return value


class JsonLines:
    """The rows of a `.jsonl` file. Only the place of each line is kept; a row is read when it is asked for."""

    def __init__(self, path: Path):
        self.path = path
        stat = path.stat()
        self.starts, self.lines = _lines(path, stat.st_mtime_ns, stat.st_size)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(self.starts[index])
            return _parse(file.readline(), self.where(index))

    def where(self, index: int) -> str:
        return f"{self.path}, line {self.lines[index]}"


@functools.lru_cache(32)
def _lines(path: Path, changed: int, size: int) -> tuple[array[int], array[int]]:
    """Where each line that is not blank begins, and its number from 1; kept while the file is unchanged."""
    starts, numbers, at = array("Q"), array("Q"), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                starts.append(at)
                numbers.append(number)
            at += len(line)
    return starts, numbers


@functools.lru_cache(8)
def _json(path: Path, changed: int, size: int) -> list[Any]:
    rows = _parse(path.read_bytes(), str(path))
    if not isinstance(rows, list):
        raise ValueError(f"{path}: a .json file must hold a list of objects; got {type(rows).__name__}")
    return rows


def _parse(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: this is no JSON: {error}") from None


class _Parquet:
    """The rows of a Parquet file, of which only the columns in use are read."""

    def __init__(self, path: Path, columns: Sequence[str]):
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError('reading a .parquet file needs pyarrow: pip install "legos[datasets]"') from error
        present = parquet.read_schema(path).names
        self.table = parquet.read_table(path, columns=[name for name in columns if name in present] or present)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: int) -> Any:
        return self.table.slice(index, 1).to_pylist()[0]


@functools.lru_cache(8)
def _hub(name: str, config: str | None, split: str) -> Any:
    """A Hugging Face data set: from the network once, then from its cache."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f'source "hf:{name}" needs Hugging Face datasets: pip install "legos[datasets]"') from error
    try:
        return datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise RuntimeError(
            f"cannot load the data set {name!r} (config {config!r}, split {split!r}): {type(error).__name__}: {error}. "
            "Without network, load it once where there is one, or give a local file: source='path/to/test.jsonl'"
        ) from error


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
    """Opens a source of problems; the arguments are those of `Dataset`, but `answer` None reads no answers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of no known kind, is empty, or lacks the fields.
        ImportError: a package is missing; the message says which.
        RuntimeError: a Hugging Face data set cannot be loaded.
    """
    if isinstance(source, str) and source == WORDS:
        return Words(size, level)
    if isinstance(source, str) and source.startswith(HUB):
        name = source.removeprefix(HUB)
        split = "train" if split is None else arguments.text("split", split, 200)
        rows = _hub(arguments.text("source", name, 500), config, split)
        return Rows(rows, f"{name} ({split}), row {{index}}", question, answer, answer_pattern)
    if isinstance(source, str | Path) and Path(source).suffix in SUFFIXES:
        rows, where = _file(Path(source), [name for name in (question, answer) if name])
        return Rows(rows, where, question, answer, answer_pattern)
    if hasattr(source, "__len__") and hasattr(source, "__getitem__") and not isinstance(source, Mapping | bytes | str):
        return Rows(source, "source, row {index}", question, answer, answer_pattern)
    raise ValueError(
        f"source must be {WORDS!r}, a path that ends in {', '.join(SUFFIXES)}, 'hf:NAME' or a sequence of mappings; "
        f"got {(str(source) if isinstance(source, Path) else source)!r}"
    )


def _file(path: Path, columns: Sequence[str]) -> tuple[Any, str]:
    """The rows of a file, and what errors call them."""
    if not path.is_file():
        raise FileNotFoundError(f"source: there is no file {str(path)!r} (looked in {Path.cwd()})")
    where = f"{str(path).replace('{', '{{').replace('}', '}}')}, row {{index}}"
    if path.suffix == ".jsonl":
        return JsonLines(path), where
    if path.suffix == ".parquet":
        return _Parquet(path, columns), where
    stat = path.stat()
    return _json(path, stat.st_mtime_ns, stat.st_size), where


# --- which problem an episode is about -------------------------------------------------------------------------------


def drawn(problems: Problems, source: Any, split: str | None) -> Sequence[int]:
    """The indices of the problems that episodes are about: all, or those of a split of `legos_envs.tasks.splits`.

    A Hugging Face data set has splits of its own. Without a split, generated problems are those for training.

    Raises:
        ValueError: the split is unknown or holds no problem.
    """
    if isinstance(problems, Words):
        return _words_of(problems.size, problems.level, split or "train")
    if split is None or (isinstance(source, str) and source.startswith(HUB)):
        return range(len(problems))
    return of_split(range(len(problems)), split, lambda index: problems[index].question)


@functools.lru_cache(8)
def _words_of(size: int, level: int | None, split: str) -> Sequence[int]:
    return of_split(range(size), split, lambda index: word_problem(index, level).question)


def choose(table: Table, size: int, order: str, drawn: Sequence[int] | None = None) -> int:
    """The index of an episode's problem, a function of seed and options.

    With `"seed"`, seeds 0 to N - 1 take each of N problems once, in a shuffled order, the next N seeds again in another
    order. `"sequential"` takes them as they stand; `"random"` draws. At a nested table it is always drawn.

    Args:
        table: the episode's.
        size: how many problems there are, which option `index` counts.
        order: one of `ORDERS`.
        drawn: the indices to choose from without the option; None for all.

    Raises:
        ValueError: option `index` is not from 0 to `size` - 1.
    """
    given = table.options.get("index")
    if given is not None:
        return arguments.whole("option index", given, 0, size - 1)
    some = range(size) if drawn is None else drawn
    if order == "random" or table.path:
        return some[int(table.rng.integers(len(some)))]
    epoch, place = divmod(table.env.seed or 0, len(some))
    return some[place if order == "sequential" else int(_shuffled(len(some), epoch)[place])]


@functools.lru_cache(16)
def _shuffled(size: int, epoch: int) -> np.ndarray:
    """The problems in a shuffled order, (size,): another one in every epoch, the same for all envs."""
    return keyed_generator(epoch, f"order of {size}").permutation(size)
