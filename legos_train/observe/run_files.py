"""What is in a run directory, as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from legos_train.disk import MetricsFile, RunDirectory
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
        RunError: the directory holds no run, or a file of it cannot be read.
    """
    if not (path / "config.toml").exists():
        raise RunError(f"{str(path)!r} is not a run directory: it has no config.toml; give what `legos train` wrote")
    run = RunDirectory(path)
    result = run.read_json("result.json") if run.finished else {}
    return RunFiles(MetricsFile.read(path / "metrics.jsonl"), run.first_numbers() or {}, result)
