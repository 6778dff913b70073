"""The live output of a run: a dashboard on a terminal; elsewhere one line per step, or JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, get_args

from legos_train.config import sections
from legos_train.disk import as_json
from legos_train.observe.dashboard_tables import facts_table, grid, learners_table
from legos_train.observe.dashboard_text import clock, number, shown, sparkline
from legos_train.observe.eval_numbers import ends_of, results
from legos_train.observe.progress_line import ProgressLine
from legos_train.observe.verdict import measures

PACE = 20
"""Number of last steps used for the time left."""
MOST_ROLES, LINE_ROLES = 10, 2
NARROW = 76
"""Terminals with fewer columns get no sparklines."""


def settled(mode: sections.ProgressMode) -> sections.ProgressMode:
    """Resolves `auto`: `rich` on a terminal, `plain` elsewhere.

    Raises:
        ValueError: the mode is not auto, rich, plain or json.
    """
    if mode not in get_args(sections.ProgressMode):
        raise ValueError(f"progress mode must be auto, rich, plain or json; got {mode!r}")
    if mode != "auto":
        return mode
    return "rich" if sys.stdout.isatty() else "plain"


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules and type(sys.stdout).__module__.startswith("ipykernel")


class Progress:
    """Live view of a run.

    Args:
        title: readable title of the run.
        steps: total steps of the run; `start`: steps already done.
        every: plain mode prints a line every `every` steps, and for the first and the last; None: for every step, in
            a notebook for every tenth.
        quiet: show nothing.
        mode: see `settled`; `json` prints every step's metrics record as one line, notes as `{"note": ...}`.
        console: a rich console to draw on instead of standard output.

    Raises:
        ValueError: unknown mode.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        start: int = 0,
        every: int | None = None,
        quiet: bool = False,
        mode: sections.ProgressMode = "auto",
        console: Any = None,
    ):
        mode = "rich" if mode == "auto" and console is not None else settled(mode)
        every = every or (10 if _in_notebook() else 1)
        self.title, self.steps, self.start, self.every, self.quiet, self.mode = title, steps, start, every, quiet, mode
        self.live: Any = None
        self._console = console
        self._times: deque[tuple[int, float]] = deque([(start, time.monotonic())], maxlen=PACE + 1)
        self._history: dict[str, list[float]] = {}
        self._ends: dict[str, tuple[float, float] | None] = {}
        self._alarms: deque[str] = deque(maxlen=3)
        self._panel: Any = None
        self._under_way: ProgressLine | None = None
        self._done = 0

    def __enter__(self) -> Progress:
        if not self.quiet and self.mode == "rich":
            from rich.live import Live

            self.live = Live(console=self._console, refresh_per_second=4)
            self.live.start()
        self._times[0] = (self.start, time.monotonic())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def note(self, text: str) -> None:
        """Prints one permanent line."""
        if self.quiet:
            return
        if self.live is not None:
            from rich.text import Text

            # markup=False would hold for the dashboard too, which is redrawn below the note
            self.live.console.print(Text(text), highlight=False, soft_wrap=True)
        else:
            print(json.dumps({"note": text}) if self.mode == "json" else text, flush=True)

    def before(self, numbers: Mapping[str, float]) -> None:
        """Receives the evaluation before the first step, where the curves of exact numbers start."""
        for name in results(numbers):
            self._keep(f"eval/{name}", numbers[name])

    def update(self, record: Mapping[str, Any]) -> None:
        """Shows a step: its metrics record with `step` and, after an evaluation, `eval`."""
        if self.quiet:
            return
        step = int(record["step"])
        self._under_way = None
        self._times.append((step, time.monotonic()))
        self._remember(record)
        if self.mode == "json":
            print(as_json(dict(record)), flush=True)
        elif self.live is not None:
            self._panel = self.panel(record)
            self.live.update(self._panel)
        elif step == self.start + 1 or step % self.every == 0 or step == self.steps:
            print(self._line(record), flush=True)
        elif record.get("alarms"):
            print(f"step {step}: {self._alarms[-1]}", flush=True)

    def working(self, unit: str, done: int, total: int) -> None:
        """Shows the progress of a long step or evaluation: below the dashboard, or as a line every half minute.

        Args:
            unit: what is counted, such as `episodes of step 3`.
            done: how many are done; may be called at any rate.
            total: how many there are.
        """
        if self.quiet or self.mode == "json":
            return
        if self._under_way is None or self._under_way.unit != unit or done < self._done:
            bar = False if self.mode == "plain" else None
            line = ProgressLine(unit, sys.stdout, bar=bar, show=self._below if self.live else None)
            if self._under_way is not None:  # many short batches are as long as one
                line.due = self._under_way.due
            self._under_way = line
        self._done = done
        self._under_way(done, total)
        if done >= total:
            self._under_way.close()

    def _below(self, text: str) -> None:
        from rich.console import Group
        from rich.text import Text

        self.live.update(Group(*filter(None, (self._panel, Text(text, style="dim")))))

    def _remember(self, record: Mapping[str, Any]) -> None:
        evaluation = record.get("eval") or {}
        for name in results(evaluation):
            self._keep(f"eval/{name}", evaluation[name])
            self._ends[name] = ends_of(evaluation, name)
        for role, value in (record.get("reward") or {}).items():
            self._keep(f"reward/{role}", value)
        for alarm in record.get("alarms") or ():
            done = alarm.get("done", "none")
            self._alarms.append(f"alarm {alarm['name']}: {alarm['text']}" + ("" if done == "none" else f" ({done})"))

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, int | float) and math.isfinite(value):
            self._history.setdefault(name, []).append(float(value))

    def left(self) -> str:
        """The time left at the pace of the last steps, as `1:02:03` or `2:03`."""
        (first, then), (last, now) = self._times[0], self._times[-1]
        if last == first:
            return "?"
        return clock((now - then) / (last - first) * max(self.steps - last, 0))

    def _line(self, record: Mapping[str, Any]) -> str:
        roles = list((record.get("reward") or {}).items())
        reward = " ".join(f"{role} {value:+.3f}" for role, value in roles[:LINE_ROLES])
        reward += f" and {len(roles) - LINE_ROLES} more" if len(roles) > LINE_ROLES else ""
        evaluation = {k: v for k, v in (record.get("eval") or {}).items() if isinstance(v, float)}
        numbers = " ".join(f"{k} {evaluation[k]:.3f}" for k in measures(evaluation))
        void = f"unscored {record['unscored_rate']:.0%}  " if record.get("unscored_rate") else ""
        return (
            f"step {record['step']}/{self.steps}  reward {reward}  invalid {number(record, 'invalid_rate', '.1%')}  "
            f"{void}{number(record, 'seconds', '.2f')} s  left {self.left()}"
            + (f"  | {numbers}" if numbers else "")
            + (f"  | {self._alarms[-1]}" if record.get("alarms") else "")
        )

    def panel(self, record: Mapping[str, Any]) -> Any:
        """The dashboard after a step, as a rich renderable. It fits terminals of 40 columns or more."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        width = self.live.console.width if self.live is not None else getattr(self._console, "width", 100)
        wide = width >= NARROW
        parts: list[Any] = [self._bar(record, width), *(Text(alarm, style="bold red") for alarm in self._alarms)]
        roles = list((record.get("reward") or {}).items())
        wins = {**(record.get("win_rate") or {}), **(record.get("success_rate") or {})}
        facts = facts_table(record, wide)
        measured = [(k.removeprefix("eval/"), v) for k, v in self._history.items() if k.startswith("eval/")]
        alarm_lines = sum(-(-len(alarm) // max(1, width - 4)) for alarm in self._alarms)
        learners = dict(record.get("learners") or {})
        learners = learners if len(learners) > 1 else {}
        most = self._room([len(roles), len(measured), len(learners)], facts.row_count + alarm_lines)
        if most[1] < len(measured):  # drop the weight average first if there is no room
            measured.sort(key=lambda item: item[0].endswith("_average"))
        table = grid("role", "reward", "wins", wide)
        if wide:
            table.add_column("over the steps", no_wrap=True)
        for role, value in roles[: most[0]]:
            line: list[Any] = [Text(role), shown(value, "+.3f"), shown(wins.get(role), ".0%")]
            table.add_row(*line, *([sparkline(self._history.get(f"reward/{role}", ()), 30)] if wide else []))
        if len(roles) > most[0]:
            table.add_row(Text(f"and {len(roles) - most[0]} more", style="dim"))
        parts.append(table)
        if learners:
            parts += [Text(), learners_table(learners, most[2], wide)]
        if measured:
            table = grid("measured", "first", "now", wide)
            if wide:
                table.add_column("", no_wrap=True, style="cyan")
            for name, values in measured[: most[1]]:
                ends = self._ends.get(name) if wide else None
                span = f" {ends[0]:.2f} to {ends[1]:.2f}" if ends and all(map(math.isfinite, ends)) else ""
                now = Text.assemble((f"{values[-1]:.3f}", "bold"), (span, "dim"))
                line = [Text(name), Text(f"{values[0]:.3f}"), now]
                table.add_row(*line, *([sparkline(values, 30)] if wide else []))
            if len(measured) > most[1]:
                table.add_row(Text(f"and {len(measured) - most[1]} more", style="dim"))
            parts += [Text(), table]
        parts += [Text(), facts]
        return Panel(Group(*parts), title=Text(self.title), width=min(width, 100))  # same width at every step

    def _room(self, counts: Sequence[int], others: int) -> list[int]:
        """How many roles, measured numbers and learners fit without cutting off the rest of the panel."""
        most = [min(count, MOST_ROLES) for count in counts]
        if self.live is None:
            return most
        headings = 6 + 2 * sum(map(bool, counts[1:]))  # and the frame, the bar, gaps, the cursor
        lines = self.live.console.height - others - headings

        def needed() -> int:
            return sum(most) + sum(few < count for few, count in zip(most, counts))

        while needed() > lines and max(most) > 1:
            most[max(range(len(most)), key=lambda at: (most[at], at))] -= 1
        return most

    def _bar(self, record: Mapping[str, Any], width: int) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 2, 0, 0))
        step = int(record["step"])
        bar = ProgressBar(self.steps, step, width=max(6, min(40, width - 42)))
        row.add_row(Text(f"step {step}/{self.steps}", style="bold"), bar, f"left {self.left()}")
        return row
