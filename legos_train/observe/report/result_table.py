"""The result of a run as a table: before, last, weight average, best."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from legos_train.disk import as_json
from legos_train.observe.dashboard import Mode, settled
from legos_train.observe.eval_numbers import formatted, metric_name, results

if TYPE_CHECKING:
    from legos_train.observe.result import Result

PIPE_WIDTH = 120
"""Columns of the table where no terminal says how wide it is."""


def summary_rows(result: Result) -> list[list[str]]:
    """One row per number: name, before, last, average, best, with 95 % intervals; empty where it was not measured."""
    rows = []
    tables = (result.start, result.last, result.average, {k: v for k, v in result.best.items() if k != "step"})
    for key in results(*tables):
        rows.append([metric_name(key), *(formatted(numbers, key) for numbers in tables)])
    return rows


def print_table(result: Result, progress: Mode = "auto") -> None:
    """The result of a run: before and after, the files, how to look at them.

    On a terminal, in a notebook and with `plain` it is a table on standard output. Where that is read by a program it
    is one line of JSON; if nobody asked for JSON (`auto`), the table goes to standard error, for the person behind it.
    """
    lines = settled(progress) == "json"
    if lines:
        print(as_json({"result": as_dict(result)}), flush=True)
        if progress == "json":
            return
    people = sys.stderr if lines else sys.stdout
    from rich.console import Console
    from rich.table import Table

    best = f"best (step {int(result.best['step'])})" if result.best else "best"
    table = Table(title=f"{result.steps} steps in {result.seconds:.0f} s")
    for i, name in enumerate(("", "before", "last", "weight average", best)):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in summary_rows(result):
        table.add_row(*row)
    console = Console(file=people, width=None if people.isatty() else PIPE_WIDTH)
    console.print(table)
    for text in (
        f"published adapter ({result.published}): {result.run_dir / 'adapter'}",
        f"report: {result.run_dir / 'report.html'}",
        f"episodes: legos view {result.run_dir}",
    ):
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def as_dict(result: Result) -> dict[str, Any]:
    """Where things are, how long it took, and the measured numbers."""
    places = {"run_dir": str(result.run_dir), "report": str(result.run_dir / "report.html")}
    places["adapter"] = str(result.run_dir / "adapter")
    facts = {"steps": result.steps, "seconds": round(result.seconds, 3), "stopped": result.stopped}
    numbers = {"start": result.start, "last": result.last, "average": result.average, "best": result.best}
    return {**places, "published": result.published, **facts, **numbers}
