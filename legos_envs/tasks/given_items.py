"""Items of a task's `source`, for tasks that have items of their own without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legos_envs import arguments
from legos_envs.tasks.rows import open_rows
from legos_envs.tasks.splits import SPLITS


def given_items(
    source: Any,
    names: Mapping[str, str],
    fields: Mapping[str, str] | None,
    split: str,
    config: str | None,
    bad_rows: str,
    **how: Any,
) -> tuple[Any, ...] | None:
    """What `open_rows` makes of a source; None without one. The arguments are those of `open_rows`.

    Raises:
        ValueError: the split is unknown, or arguments for a source are given without one.
    """
    if source is not None:
        return open_rows(source, names, fields, split=split, config=config, bad_rows=bad_rows, **how)
    arguments.one_of("split", split, SPLITS)
    for name, value in (("fields", fields), ("config", config)):
        if value is not None:
            raise ValueError(f"{name} is for a source; got {value!r} without one")
    return None
