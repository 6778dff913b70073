"""Named points at which a test kills the process: `LEGOS_CRASH_AT=checkpoint.renamed:2 legos train ...`.

In this example the process ends when it passes that point for the second time, as with `kill -9`: no cleanup, no
flushed buffers. Without the variable a point costs one comparison. Every name is in `CRASH_POINTS`, so that a test can
go through them.
"""

from __future__ import annotations

import os

CRASH_VARIABLE = "LEGOS_CRASH_AT"
EXIT_CODE = 137
"""The exit code that a shell shows for a process killed by SIGKILL."""

STORAGE_POINTS = (
    # the run directory and its small files, each replaced in one step
    *("run.locked", "run.swept"),
    *("identity.torn", "identity.written", "identity.renamed"),
    *("config.torn", "config.written", "config.renamed", "start.torn", "start.written", "start.renamed"),
    *("report.torn", "report.written", "report.renamed", "result.torn", "result.written", "result.renamed"),
    *("file.torn", "file.written", "file.renamed"),
    # metrics.jsonl: a line added; truncated to the checkpoint on resume
    *("metrics.torn", "metrics.appended", "metrics.synced"),
    *("cut.torn", "cut.written", "cut.renamed"),
    # a checkpoint, in order
    *("checkpoint.begun", "checkpoint.torn", "checkpoint.arrays_written", "checkpoint.file_written"),
    *("checkpoint.state_written", "checkpoint.manifest_written", "checkpoint.directory_synced"),
    *("checkpoint.old_moved", "checkpoint.renamed", "checkpoint.committed"),
    # old ones removed, after the new one is safe
    *("prune.begun", "prune.renamed", "prune.file_removed", "prune.removed"),
    # restoring
    *("load.begun", "load.set_aside", "load.read", "sweep.restored", "sweep.removed"),
    # an adapter
    *("adapter.begun", "adapter.torn", "adapter.weights_written", "adapter.config_written", "adapter.directory_synced"),
    *("adapter.renamed", "adapter.swapped", "adapter.old_moved", "adapter.replaced", "adapter.saved"),
)
"""Passed by the files of `legos_train.disk`."""

LOOP_POINTS = (
    *("loop.resumed", "loop.step_begun", "loop.step_played", "loop.credited", "loop.updated", "loop.published"),
    *("loop.evaluated", "loop.metrics_written", "loop.checkpointed", "loop.finishing", "loop.finished"),
)
"""Passed by the training loop."""

CRASH_POINTS = STORAGE_POINTS + LOOP_POINTS

_name: str | None = None
_left = 0


def arm(spec: str | None) -> None:
    """Sets where to end the process: `NAME`, or `NAME:N` for the N-th pass from now; None or empty: nowhere.

    Raises:
        ValueError: no point has that name, or N is not a positive number.
    """
    global _name, _left
    if not spec:
        _name, _left = None, 0
        return
    name, _, count = spec.partition(":")
    if name not in CRASH_POINTS:
        raise ValueError(f"{CRASH_VARIABLE} names {name!r}; the points are {', '.join(CRASH_POINTS)}")
    if count and not (count.isdecimal() and int(count) > 0):
        raise ValueError(
            f"{CRASH_VARIABLE}={spec}: the number after the colon is the pass to end at, 1 or more, got {count!r}"
        )
    _name, _left = name, int(count or 1)


def crashpoint(name: str) -> None:
    """Ends the process here if the variable says so."""
    global _left  # noqa: PLW0603
    if name != _name:
        return
    _left -= 1
    if _left == 0:
        os._exit(EXIT_CODE)


arm(os.environ.get(CRASH_VARIABLE))
