"""The contents of a run directory, as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from legos_train.disk import MetricsFile, RunDirectory
from legos_train.errors import RunError


class RunFiles(NamedTuple):
    """The files of a run.

    Attributes:
        records: the rows of metrics.jsonl.
        start: the evaluation before the first step; empty if there was none.
        result: result.json; empty until the run has finished.
    """

    records: list[dict[str, Any]]
    start: dict[str, Any]
    result: dict[str, Any]


def read_run(path: Path) -> RunFiles:
    """Reads a run directory, even while the run is active.

    Raises:
        RunError: the directory is not a run, or one of its files cannot be read.
    """
    if not (path / "config.toml").exists():
        raise RunError(
            f"{str(path)!r} is not a run directory: it has no config.toml; give one that `legos train` wrote"
        )
    run = RunDirectory(path)
    result = run.read_json("result.json") if run.finished else {}
    return RunFiles(MetricsFile.read(path / "metrics.jsonl"), run.first_numbers() or {}, result)
