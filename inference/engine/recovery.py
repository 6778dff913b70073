"""Finds the rows at fault after an exception in a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference.engine.model_runner import ModelRunner
from inference.engine.rows import Row


def guilty_rows(runner: ModelRunner, kv: Any, rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Restarts every row and feeds each alone; returns the rows that fail, with their errors.

    Keys and values may be half written when a pass fails, so all are forgotten; tokens are not.
    """
    guilty: list[tuple[Row, str]] = []
    for row in rows:
        slot, row.slot = row.slot, 0
        for member in (row, *row.branches):
            member.restart()
        kv.reset()
        try:
            for _ in runner.feed(kv, [row]):
                pass
        except Exception as error:
            guilty.append((row, f"{type(error).__name__}: {error}"))
        row.slot = slot
    kv.reset()
    return guilty
