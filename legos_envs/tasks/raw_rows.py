"""The rows behind `source=`: a local file, a Hugging Face data set, or a sequence in memory, each by its index.

Rows are read on demand. Errors name the file and the line.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import math
import numbers
import socket
import urllib.parse
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from legos_envs import arguments

SUFFIXES = (".jsonl", ".json", ".parquet")
HUB = "hf:"


class DataSetUnavailable(RuntimeError):
    """A Hugging Face data set cannot be loaded; the message says why and what to do."""


class RawRows(NamedTuple):
    """Rows as in their source."""

    rows: Any
    """Anything with a length of at least 1 that returns a row for an index."""
    place: Callable[[int], str]
    """The name that errors use for the row at an index."""


def raw_rows(
    source: Any,
    columns: Sequence[str] = (),
    config: str | None = None,
    split: str | None = None,
    built_in: Sequence[str] = (),
) -> RawRows:
    """The rows of a source.

    Args:
        source: a path that ends in `.jsonl`, `.json` or `.parquet`; `"hf:NAME"`; or a sequence.
        columns: the fields in use; others are skipped where possible.
        config: configuration of a Hugging Face data set.
        split: split of a Hugging Face data set, `"train"` by default; `"all"` joins all of its splits.
        built_in: other values that the caller accepts as a source, for the error message.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of an unknown kind or has no rows.
        ImportError: a package is missing; the message says which.
        DataSetUnavailable: a Hugging Face data set cannot be loaded.
    """
    rows: Any
    if isinstance(source, str) and source.startswith(HUB):
        name = arguments.text("source", source.removeprefix(HUB), 500)
        where = f"{name} ({split or 'train'})"
        rows = _hub(name, config, "train" if split is None else arguments.text("split", split, 200))
    elif isinstance(source, str | Path) and Path(source).suffix in SUFFIXES:
        where, rows = str(source), _file(Path(source), columns)
    elif (
        hasattr(source, "__len__") and hasattr(source, "__getitem__") and not isinstance(source, Mapping | bytes | str)
    ):
        where, rows = "source", source
    else:
        raise ValueError(
            f"source must be {''.join([f'{word!r}, ' for word in built_in])}a path ending in {', '.join(SUFFIXES)}, "
            f"'hf:NAME' or a sequence of mappings; got {(str(source) if isinstance(source, Path) else source)!r}"
        )
    if not len(rows):
        raise ValueError(f"{where} has no rows")
    return RawRows(rows, rows.where if isinstance(rows, _JsonLines) else lambda index: f"{where}, row {index}")


def _file(path: Path, columns: Sequence[str]) -> Any:
    if not path.is_file():
        there = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, there, 1)
        hint = f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ""
        raise FileNotFoundError(f"source: there is no file {str(path)!r} (looked in {Path.cwd()}){hint}")
    if path.suffix == ".jsonl":
        return _JsonLines(path)
    if path.suffix == ".parquet":
        return _Parquet(path, columns)
    stat = path.stat()
    return _json(path, stat.st_mtime_ns, stat.st_size)


def mapping(row: Any, place: str) -> Mapping[str, Any]:
    """The row, checked to be a mapping of fields to values.

    Raises:
        ValueError: the row is not a mapping.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"{place}: a row must be an object with fields; got {type(row).__name__}")
    return row


def text_field(row: Mapping[str, Any], name: str, place: str) -> str:
    """The text in a field of a row; finite numbers are converted to text.

    Raises:
        ValueError: the field is missing or blank, holds something else, or cannot be encoded; the message begins with
            the place.
    """
    value = row.get(name)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = str(int(value))
    elif isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        value = format(Decimal(repr(float(value))), "f")  # `str` writes 0.00005 as 5e-05
    if not isinstance(value, str) or not value.strip():
        if name not in row:
            has = ", ".join(map(repr, row)) or "no fields"
            raise ValueError(f"{place}: field {name!r} is missing; the row has {has}")
        raise ValueError(f"{place}: field {name!r} must be text or a number; got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}: field {name!r} has half a character at position {error.start}") from None
    return value


class _JsonLines:
    """The rows of a `.jsonl` file. Only the offset of each line is kept; a row is read on demand."""

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
    """The offset and the number, from 1, of each line that is not blank; cached while the file is unchanged."""
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
        raise ValueError(f"{place}: not valid JSON: {error}") from None


class _Parquet:
    """The rows of a Parquet file; only the columns in use are read."""

    def __init__(self, path: Path, columns: Sequence[str]):
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError(f"reading a .parquet file needs pyarrow: {arguments.install('datasets')}") from error
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
        needed = f"needs Hugging Face datasets: {arguments.install('datasets')}"
        raise ImportError(f'source "hf:{name}" {needed}') from error
    try:
        with _without_retries():
            return datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise DataSetUnavailable(
            f"cannot load the data set {name!r} (config {config!r}, split {split!r}): {type(error).__name__}: {error}. "
            "Without a network, load it once while connected, or give a local file: source='path/to/test.jsonl'"
        ) from error


@contextlib.contextmanager
def _without_retries() -> Iterator[None]:
    """If the hub's host name cannot be resolved, uses only its cache; its library would retry for half a minute."""
    from datasets import config
    from huggingface_hub import constants

    host = urllib.parse.urlsplit(constants.ENDPOINT).hostname or ""
    if urllib.request.getproxies() or _resolved(host):
        yield
        return
    modules: tuple[Any, ...] = (config, constants)
    before = [(module, module.HF_HUB_OFFLINE) for module in modules]
    try:
        for module, _ in before:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in before:
            module.HF_HUB_OFFLINE = value


def _resolved(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
