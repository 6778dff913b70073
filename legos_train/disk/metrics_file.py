"""`metrics.jsonl` and files like it: one JSON line per row, each row with the `step` it belongs to.

Rows are only added; a resume truncates the file to its checkpoint, so that no step appears twice. A row that could not
be written completely is removed, so that no row follows half a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from legos_train.disk import fsops
from legos_train.disk.crash import crashpoint
from legos_train.disk.fsops import write_bytes
from legos_train.errors import RunError


class MetricsFile:
    """A file of rows, open for appending.

    Args:
        resumed_from: the step of the checkpoint that the run continues from; later rows are dropped, and the
            first row written has `resumed_from`. None for a run from the start: all rows are dropped.
        marks: if off, no row has `resumed_from`.
        run: the id of the run, included in every row.

    Raises:
        RunError: a row belongs to another run.
        OSError: the file cannot be read or written; it is unchanged.
    """

    def __init__(self, path: Path, resumed_from: int | None, *, marks: bool = True, run: str | None = None):
        self.path, self._resumed_from = path, resumed_from if marks else None
        self._run = run
        if path.exists():
            self._cut(-1 if resumed_from is None else resumed_from)
        elif self._resumed_from is not None:
            print(f"{path} is gone: charts and totals cover only the steps from here on", file=sys.stderr)
        self._file = fsops.open_append(path)
        self._size = os.fstat(self._file).st_size
        self._torn = False

    def _cut(self, step: int) -> None:
        data = fsops.read_file(self.path)
        kept, unreadable, steps = [], 0, set[int]()
        for line in data.splitlines(keepends=True):
            row = _row(line)
            if row is None:
                unreadable += line.endswith(b"\n")  # a crash leaves a last line without its end
            elif None not in (self._run, row.get("run")) and row["run"] != self._run:
                raise RunError(
                    f"{self.path} has rows of another run ({row['run']}; this one is {self._run}): move the file away, "
                    "or give another --run-dir"
                )
            elif row["step"] <= step:
                kept.append(line)
                steps.add(row["step"])
        lost = step - len(steps & {*range(1, step + 1)})
        if self._resumed_from is not None and lost > 0:
            print(f"{self.path} has no rows of {lost} of the {step} steps before the checkpoint", file=sys.stderr)
        if unreadable:
            aside = fsops.free(self.path.with_name(self.path.name + ".corrupt"))
            write_bytes(aside, data, "cut")
            print(f"{self.path} has {unreadable} lines that are not rows; kept as {aside.name}", file=sys.stderr)
        if b"".join(kept) != data:
            write_bytes(self.path, b"".join(kept), "cut")

    @classmethod
    def read(cls, path: Path) -> list[dict[str, Any]]:
        """All complete rows; a line torn by a crash is skipped, a missing file has none."""
        if not path.exists():
            return []
        return [row for line in fsops.read_file(path).splitlines(keepends=True) if (row := _row(line)) is not None]

    def write(self, record: Mapping[str, Any]) -> None:
        """Adds a row. It survives a crash of the process at once, and one of the machine after `sync`.

        Raises:
            OSError: the row could not be written; the file ends with the one before it.
        """
        row = dict(record) if self._run is None else {**record, "run": self._run}
        if self._resumed_from is not None:
            row["resumed_from"] = self._resumed_from
        data = (as_json(row) + "\n").encode()
        if self._torn:
            self._take_back()
        try:
            self._torn = True
            fsops.append(self._file, self.path, data, "metrics.torn")
        except BaseException:
            with suppress(OSError):  # retried before the next row; the first error is more informative
                self._take_back()
            raise
        self._torn = False
        self._size += len(data)
        self._resumed_from = None
        crashpoint("metrics.appended")

    def _take_back(self) -> None:
        fsops.truncate(self._file, self.path, self._size)
        self._torn = False

    def sync(self) -> None:
        """Makes all rows durable. A checkpoint is written only after this, so that it is never ahead of the file.

        Raises:
            OSError: the disk did not accept them.
        """
        fsops.sync_open(self._file, self.path)
        crashpoint("metrics.synced")

    def close(self) -> None:
        os.close(self._file)


def _row(line: bytes) -> dict[str, Any] | None:
    """The row of a complete line, None for anything else."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def as_json(value: Any) -> str:
    """A value as one line of JSON; numbers that are not finite become null, because JSON has no NaN."""
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
