"""Items of your own for any task: `open_rows` reads a file, a Hugging Face data set or a list into a task's fields.

    open_rows("topics.jsonl", {"topic": "topic"}, fields={"topic": "question"})   # ({"topic": "..."}, ...)

A row that does not fit is named by its number; it is refused, or skipped if you say so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from legos_envs import arguments
from legos_envs.tasks.raw_rows import HUB, mapping, raw_rows, text_field
from legos_envs.tasks.splits import SPLITS, of_split

T = TypeVar("T")
BAD_ROWS = ("refuse", "skip")
SHOWN = 3
"""How many bad rows a message shows."""


def open_rows(
    source: Any,
    names: Mapping[str, str],
    fields: Mapping[str, str] | None = None,
    *,
    make: Callable[[dict[str, Any]], T] = dict,  # type: ignore[assignment]
    optional: Collection[str] = (),
    values: Collection[str] = (),
    split: str = "all",
    config: str | None = None,
    bad_rows: str = "refuse",
    built_in: Collection[str] = (),
    key: Callable[[T], str] | None = None,
) -> tuple[T, ...]:
    """All items of a source.

    Args:
        source: a path that ends in `.jsonl`, `.json` or `.parquet`; `"hf:NAME"`; or a sequence of mappings. Where the
            task needs one field only, a sequence of texts will do.
        names: the fields that the task reads, and what a source calls them unless `fields` says otherwise. The first
            one identifies the item for `split`, where no `key` does.
        fields: what your source calls them: `{"prompt": "text"}` if it has the prompt in its field `text`.
        make: makes the item of a row, which has the task's fields; it raises ValueError for a row that does not fit.
        optional: fields that a row may lack.
        values: fields that may be any value. All others must be text, or a number, which is written out.
        split: `"all"`, `"train"` or `"test"`: a fifth of the items, by hash, is for testing. Of a Hugging Face data set
            it is the data set's own split.
        config: of a Hugging Face data set.
        bad_rows: `"refuse"`, or `"skip"`, which warns.
        built_in: other values that the caller takes for a source, for errors.
        key: what identifies an item for `split`, made from the item.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of no known kind or has no fitting row, a row does not fit, or an argument is wrong.
        ImportError: a package that the source needs is missing.
        RuntimeError: a Hugging Face data set cannot be loaded.
    """
    called = dict(names)
    if fields is not None and not isinstance(fields, Mapping):
        raise ValueError(f"fields must be a mapping such as {called!r}; got {fields!r}")
    for name, field in (fields or {}).items():
        if name not in called:
            raise ValueError(arguments.unknown("fields: the task's field", str(name), list(called)))
        called[name] = arguments.text(f"fields: {name}", field, 200)
    arguments.one_of("bad_rows", bad_rows, BAD_ROWS)
    hub = isinstance(source, str) and source.startswith(HUB)
    if not hub:
        arguments.one_of("split", split, SPLITS)
    first, *others = called
    one_field = not set(others) - set(optional)

    def read(row: Any, place: str) -> dict[str, Any]:
        if isinstance(row, str) and one_field:
            row = {called[first]: row}
        row, item = mapping(row, place), {}
        for name, field in called.items():
            if name in optional and row.get(field) in (None, ""):
                continue
            if name not in values:
                item[name] = text_field(row, field, place)
            elif field in row:
                item[name] = row[field]
            else:
                raise ValueError(f"{place}: field {field!r} is missing; the row has {', '.join(map(repr, row))}")
        return item

    raw = raw_rows(source, list(called.values()), config, split if hub else None, tuple(built_in))
    items: list[tuple[str, T]] = []
    bad: list[str] = []
    for index in range(len(raw.rows)):
        place = raw.place(index)
        try:
            item = read(raw.rows[index], place)
            made = make(item)
            items.append((str(item[first]) if key is None else key(made), made))
        except ValueError as error:
            bad.append(str(error) if str(error).startswith(place) else f"{place}: {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        message = f"{len(bad)} of {len(raw.rows)} rows do not fit: {'; '.join(bad[:SHOWN])}{more}"
        if not items:
            raise ValueError(f"{message}. The task reads {called!r}; `fields` says what your source calls them")
        if bad_rows == "refuse":
            raise ValueError(f"{message}. Mend them, or leave them out with bad_rows='skip'")
        warnings.warn(f"skipped: {message}", stacklevel=3)
    kept = items if hub else of_split(items, split, lambda pair: pair[0])
    return tuple(item for _, item in kept)
