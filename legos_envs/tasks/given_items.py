"""Items from a task's `source`, for tasks with built-in items as the default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from legos_envs import arguments
from legos_envs.tasks.rows import BAD_ROWS, open_rows
from legos_envs.tasks.splits import SPLITS

_opened: dict[str, _Opened] = {}
MOST = 32
"""Number of sources to cache, since a run creates hundreds of envs with the same one."""
_FIXED = (str, int, float, type(None))
"""Types of values that nobody can change within a row."""


def without_source(**given: Any) -> None:
    """Refuses arguments about reading a source if there is no source.

    Raises:
        ValueError: one of them is given without a source; it would have no effect.
    """
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is for a source; got {value!r} without one")


def given_items(
    source: Any,
    names: Mapping[str, str],
    fields: Mapping[str, str] | None,
    split: str,
    config: str | None,
    bad_rows: str,
    make: Callable[[dict[str, Any]], Any],
    optional: Collection[str] = (),
    values: Collection[str] = (),
    key: Callable[[Any], str] | None = None,
    built_in: Collection[str] = (),
) -> tuple[Any, ...] | None:
    """The items that `open_rows` reads from a source; None without a source. The arguments are those of `open_rows`.

    An unchanged file is read only once, as are a data set and unchanged rows in memory; `make` is a module-level
    function, or a `functools.partial` of one, and is always used with the same `key`.

    Raises:
        ValueError: the split is unknown, or arguments for a source are given without one.
    """
    if source is None:
        arguments.one_of("split", split, SPLITS)
        arguments.one_of("bad_rows", bad_rows, BAD_ROWS)
        without_source(fields=fields, config=config)
        return None
    if isinstance(source, str | Path):
        file = Path(source)
        identity: Any = str(source), (file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else None
    else:
        identity = id(source)
    function, *given = (make.func, make.args, make.keywords) if isinstance(make, partial) else (make,)
    made_by = (function.__module__, function.__qualname__, *given)
    name = repr((identity, names, fields, split, config, bad_rows, made_by))
    known = _opened.get(name)
    if known is not None and known.holds(source):
        return known.items
    items = open_rows(
        source,
        names,
        fields,
        make=make,
        optional=optional,
        values=values,
        split=split,
        config=config,
        bad_rows=bad_rows,
        key=key,
        built_in=built_in,
    )
    if isinstance(source, str | Path) or _comparable(source):
        _opened.pop(name, None)
        while len(_opened) >= MOST:
            del _opened[next(iter(_opened))]
        _opened[name] = _Opened(source, items)
    return items


class _Opened:
    """The items of a source. Rows in memory are kept beside copies of them, which show whether any has changed."""

    def __init__(self, source: Any, items: tuple[Any, ...]):
        self.source, self.items = source, items
        self.rows = None if isinstance(source, str | Path) else [{**r} if isinstance(r, dict) else r for r in source]

    def holds(self, source: Any) -> bool:
        return self.rows is None or (self.source is source and self.rows == list(source))


def _comparable(source: Any) -> bool:
    """Whether these are rows of values that cannot change, so that copies of the rows show every change."""
    if not isinstance(source, list | tuple):
        return False
    return all(isinstance(v, _FIXED) for row in source for v in (row.values() if isinstance(row, dict) else [row]))
