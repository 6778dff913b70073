"""Compares settings: a run's changes from the defaults, and differences between runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from legos_train.config import TrainConfig

LEFT_OUT = ("run_dir", "logs.progress")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `section.name -> text`; a list or a table in a list is written as JSON."""
    out: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        elif prefix + key not in LEFT_OUT:
            out[prefix + key] = value if isinstance(value, str) else json.dumps(value)
    return out


def changed(config: TrainConfig) -> list[list[str]]:
    """Rows (setting, its value, the default) of everything that differs from the default."""
    return differing([flat(config.plain()), flat(TrainConfig().plain())])


def differing(runs: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Rows (setting, value in each run) that differ between runs; "none" if a run lacks it."""
    keys = list(dict.fromkeys(key for run in runs for key in run))
    rows = [[key, *(run.get(key, "none") for run in runs)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]
