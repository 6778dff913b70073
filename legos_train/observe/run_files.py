"""What is in a run directory, as plain values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from legos_train.disk import MetricsFile
from legos_train.errors import RunError


class RunFiles(NamedTuple):
    """The files of a run.

    Attributes:
        records: the rows of metrics.jsonl.
        start: what was measured before the first step; empty where nothing was.
        result: result.json; empty while the run has not finished.
    """

    records: list[dict[str, Any]]
    start: dict[str, Any]
    result: dict[str, Any]


def read_run(path: Path) -> RunFiles:
    """Reads a run directory, also while the run goes on.

    Raises:
        RunError: the directory holds no run.
    """
    if not (path / "config.toml").exists():
        raise RunError(f"{str(path)!r} is no run directory: it has no config.toml; give what `legos train` wrote")
    files = [path / "start.json", path / "result.json"]
    start, result = (json.loads(file.read_text(encoding="utf-8")) if file.exists() else {} for file in files)
    return RunFiles(MetricsFile.read(path / "metrics.jsonl"), start, result)
