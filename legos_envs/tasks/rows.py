"""Your own items for any task: `open_rows` reads a file, a Hugging Face data set or a list into a task's fields.

    open_rows("topics.jsonl", {"topic": "topic"}, fields={"topic": "question"})   # ({"topic": "..."}, ...)

Rows that do not fit are reported by number; they are refused or, on request, skipped.
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
"""Maximum number of bad rows in a message."""


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
        source: a path ending in `.jsonl`, `.json` or `.parquet`; `"hf:NAME"`; or a sequence of mappings. If the task
            needs only one field, a sequence of texts will do.
        names: the fields that the task reads, mapped to their default names in a source, which `fields` overrides.
            Without a `key`, the first field identifies the item for `split`.
        fields: their names in your source: `{"prompt": "text"}` if the prompt is in the field `text`.
        make: converts a row, which has the task's fields, to an item; raises ValueError for a row that does not fit.
        optional: fields that a row may lack.
        values: fields that may hold any value. All others must be text, or numbers, which are converted to text.
        split: `"all"`, `"train"` or `"test"`: a fifth of the items, by hash, is for testing. For a Hugging Face data
            set, its own split; `"all"` warns that it joins them.
        config: configuration of a Hugging Face data set.
        bad_rows: `"refuse"`, or `"skip"`, which warns.
        built_in: other values that the caller accepts as a source, for error messages.
        key: computes from an item the text that identifies it for `split`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the source is of an unknown kind or has no valid row, a row does not fit, or an argument is wrong.
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

    if hub and split == "all":
        warnings.warn(f"split 'all' joins all splits of {source!r}, the test split included; name one", stacklevel=3)
    raw = raw_rows(source, list(called.values()), config, split if hub else None, tuple(built_in))
    items: list[tuple[str, T]] = []
    bad: list[str] = []
    for index in range(len(raw.rows)):
        place = raw.place(index)
        try:
            item = read(raw.rows[index], place)
            made = make(item)
            items.append((str(item[first]) if key is None else key(made), made))
        except (ValueError, OverflowError) as error:  # a number or a date that Python cannot hold
            bad.append(str(error) if str(error).startswith(place) else f"{place}: {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        message = f"{len(bad)} of {len(raw.rows)} rows do not fit: {'; '.join(bad[:SHOWN])}{more}"
        if not items:
            raise ValueError(f"{message}. The task reads {called!r}; use `fields` for other names in your source")
        if bad_rows == "refuse":
            raise ValueError(f"{message}. Fix them, or skip them with bad_rows='skip'")
        warnings.warn(f"skipped: {message}", stacklevel=3)
    kept = items if hub else of_split(items, split, lambda pair: pair[0])
    return tuple(item for _, item in kept)
