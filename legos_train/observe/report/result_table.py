"""The result of a run as a table: before, last, weight average, best."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, TextIO

from legos_train.config import sections
from legos_train.disk import as_json
from legos_train.observe.dashboard import settled
from legos_train.observe.eval_numbers import formatted, metric_name, results

if TYPE_CHECKING:
    from legos_train.observe.result import Result

PIPE_WIDTH = 120
"""Width of the table in columns without a terminal."""


def summary_rows(result: Result) -> list[list[str]]:
    """One row per number: name, before, last, average, best, with 95 % intervals; empty if not measured."""
    rows = []
    tables = (result.start, result.last, result.average, {k: v for k, v in result.best.items() if k != "step"})
    for key in results(*tables):
        rows.append([metric_name(key), *(formatted(numbers, key) for numbers in tables)])
    own = {"last": 1, "average": 2}.get(result.published)
    for key in results(result.against):
        if own is not None and key not in tables[own]:
            cells = [metric_name(key), "", "", "", ""]
            cells[1 + own] = formatted(result.against, key)
            rows.append(cells)
    return rows


def print_table(result: Result, progress: sections.ProgressMode = "auto") -> None:
    """Prints the result of a run: before and after, the files, and how to view them.

    With `json` it is one line of JSON, otherwise a table.
    """
    if settled(progress) == "json":
        print(as_json({"result": as_dict(result)}), flush=True)
        return
    people = sys.stdout
    best = f"best (step {int(result.best['step'])})" if result.best else "best"
    place = result.run_dir
    finished = (place / "result.json").exists() and result.stopped != "interrupted"
    _table(result, best, people) if finished or people.isatty() else _lines(result, best, people)
    done = [
        f"published adapter ({result.published}; {result.published_why}): {place / 'adapter'}",
        f"report: {place / 'report.html'}",
    ]
    run = shlex.quote(str(place))
    missing = [f"not finished ({result.stopped}); report so far: legos report {run}"]
    seen = [f"episodes: legos view {run}"] if (place / "rollouts.jsonl").exists() else []
    for text in (result.verdict, *(done if finished else missing), *seen):
        print(text, file=people, flush=True)


def _table(result: Result, best: str, people: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result.steps} step{'s' * (result.steps != 1)} in {result.seconds:.0f} s")
    for i, name in enumerate(("", "before", "last", "weight average", best)):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in summary_rows(result):
        table.add_row(*row)
    Console(file=people, width=None if people.isatty() else PIPE_WIDTH).print(table)


def _lines(result: Result, best: str, people: TextIO) -> None:
    """The table's contents without its library, so that interrupting a run does not wait for it to load."""
    for name, *cells in summary_rows(result):
        named = zip(("before", "last", "weight average", best), cells)
        print(f"{name}: " + ", ".join(f"{when} {cell}" for when, cell in named if cell), file=people)


def as_dict(result: Result) -> dict[str, Any]:
    """Paths, duration and the measured numbers."""
    places = {"run_dir": str(result.run_dir)}
    for name, file in (("report", "report.html"), ("adapter", "adapter")):
        if (result.run_dir / file).exists():  # an interrupted run has neither
            places[name] = str(result.run_dir / file)
    return {**places, **result.kept(), "seconds": round(result.seconds, 3)}
