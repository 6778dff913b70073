"""The result of a run as a table: before, last, weight average, best."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from legos_train.report.figures import metric_name

if TYPE_CHECKING:
    from legos_train.loop import Result

PIPE_WIDTH = 120
"""Columns of the table where no terminal says how wide it is."""


def summary_rows(result: Result) -> list[list[str]]:
    """One row per number: name, before, last, average, best; empty where it was not measured."""
    rows = []
    for key in result.last or result.start:
        cells = [metric_name(key)]
        for numbers in (result.start, result.last, result.average, result.best):
            cells.append(f"{numbers[key]:.4f}" if key in numbers else "")
        rows.append(cells)
    return rows


def print_table(result: Result, progress: str = "auto") -> None:
    """The result of a run: before and after, the files, how to look at them; with `progress="json"` one JSON line."""
    if progress == "json":
        numbers = {"start": result.start, "last": result.last, "average": result.average, "best": result.best}
        facts = {"steps": result.steps, "seconds": round(result.seconds, 3), "stopped": result.stopped}
        print(json.dumps({"result": {"run_dir": str(result.run_dir), **facts, **numbers}}), flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    best = f"best (step {int(result.best['step'])})" if result.best else "best"
    table = Table(title=f"{result.steps} steps in {result.seconds:.0f} s")
    for i, name in enumerate(("", "before", "last", "weight average", best)):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in summary_rows(result):
        table.add_row(*row)
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    console.print(table)
    for text in (
        f"published adapter ({result.published}): {result.run_dir / 'adapter'}",
        f"report: {result.run_dir / 'report.html'}",
        f"episodes: legos view {result.run_dir}",
    ):
        console.print(text, highlight=False, soft_wrap=True)
