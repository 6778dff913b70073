"""What a run shows while it works: a live dashboard on a terminal; elsewhere plain lines, or every step as JSON."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from legos_train.metrics_file import _finite

Mode = Literal["auto", "rich", "plain", "json"]
PACE = 20
"""How many of the last steps the time left is computed from."""
MOST_ROLES = 10
NARROW = 76
"""Terminals with fewer columns get no sparklines."""
BARS = "▁▂▃▄▅▆▇█"


class Progress:
    """Live view of a run.

    Args:
        title: the run, for people.
        steps: how many the run has in all; `start`: how many were done before.
        every: plain mode prints a line every so many steps, and for the first and the last.
        quiet: show nothing.
        mode: `auto` is `rich` on a terminal and `plain` elsewhere; `json` prints every step's metrics record as one
            line, notes as `{"note": ...}`.
        console: a rich console to draw on instead of standard output.

    Raises:
        ValueError: the mode is none of these.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        start: int = 0,
        every: int = 10,
        quiet: bool = False,
        mode: Mode = "auto",
        console: Any = None,
    ):
        if mode not in ("auto", "rich", "plain", "json"):
            raise ValueError(f"progress mode must be auto, rich, plain or json; got {mode!r}")
        if mode == "auto":
            mode = "rich" if console is not None or sys.stdout.isatty() else "plain"
        self.title, self.steps, self.start, self.every, self.quiet, self.mode = title, steps, start, every, quiet, mode
        self.live: Any = None
        self._console = console
        self._times: deque[tuple[int, float]] = deque([(start, time.monotonic())], maxlen=PACE + 1)
        self._history: dict[str, list[float]] = {}
        self._alarms: deque[str] = deque(maxlen=3)

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

    def note(self, text: str) -> None:
        """One line that stays."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(json.dumps({"note": text}) if self.mode == "json" else text, flush=True)

    def before(self, numbers: Mapping[str, float]) -> None:
        """What was measured before the first step: where the curves of the exact numbers begin."""
        for name, value in numbers.items():
            self._keep(f"eval/{name}", value)

    def update(self, record: Mapping[str, Any]) -> None:
        """Shows a step: its metrics record with `step` and, after an evaluation, `eval`."""
        if self.quiet:
            return
        step = int(record["step"])
        self._times.append((step, time.monotonic()))
        self._remember(record)
        if self.mode == "json":
            print(json.dumps(_finite(dict(record))), flush=True)
        elif self.live is not None:
            self.live.update(self.panel(record))
        elif step == self.start + 1 or step % self.every == 0 or step == self.steps:
            print(self._line(record), flush=True)
        elif record.get("alarms"):
            print(f"step {step}: {self._alarms[-1]}", flush=True)

    def _remember(self, record: Mapping[str, Any]) -> None:
        for name, value in (record.get("eval") or {}).items():
            self._keep(f"eval/{name}", value)
        for role, value in (record.get("reward") or {}).items():
            self._keep(f"reward/{role}", value)
        for alarm in record.get("alarms") or ():
            done = alarm.get("done", "none")
            self._alarms.append(f"alarm {alarm['name']}: {alarm['text']}" + ("" if done == "none" else f" ({done})"))

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, int | float) and math.isfinite(value):
            self._history.setdefault(name, []).append(float(value))

    def left(self) -> str:
        """The time that the steps to go will take at the pace of the last ones, as `1:02:03` or `2:03`."""
        (first, then), (last, now) = self._times[0], self._times[-1]
        if last == first:
            return "?"
        return clock((now - then) / (last - first) * max(self.steps - last, 0))

    def _line(self, record: Mapping[str, Any]) -> str:
        reward = " ".join(f"{role} {value:+.3f}" for role, value in (record.get("reward") or {}).items())
        shown = " ".join(f"{k} {v:.3f}" for k, v in (record.get("eval") or {}).items() if isinstance(v, float))
        return (
            f"step {record['step']}/{self.steps}  reward {reward}  invalid {_number(record, 'invalid_rate', '.1%')}  "
            f"entropy {_number(record, 'entropy', '.3f')}  kl {_number(record, 'kl', '.3f')}  "
            f"{_number(record, 'seconds', '.2f')} s/step  left {self.left()}"
            + (f"  | {shown}" if shown else "")
            + (f"  | {self._alarms[-1]}" if record.get("alarms") else "")
        )

    def panel(self, record: Mapping[str, Any]) -> Any:
        """The dashboard after a step, as something that rich can print. Terminals of 40 columns and more hold it."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        width = self.live.console.width if self.live is not None else getattr(self._console, "width", 100)
        wide = width >= NARROW
        parts: list[Any] = [self._bar(record, width), *(Text(alarm, style="bold red") for alarm in self._alarms)]
        roles = list((record.get("reward") or {}).items())
        wins = record.get("win_rate") or {}
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("role", overflow="ellipsis", no_wrap=True, max_width=30 if wide else 16)
        table.add_column("reward", justify="right")
        table.add_column("wins", justify="right")
        if wide:
            table.add_column("over the steps", no_wrap=True)
        for role, value in roles[:MOST_ROLES]:
            line: list[Any] = [Text(role), _shown(value, "+.3f"), _shown(wins.get(role), ".0%")]
            table.add_row(*line, *([sparkline(self._history.get(f"reward/{role}", ()), 30)] if wide else []))
        if len(roles) > MOST_ROLES:
            table.add_row(Text(f"and {len(roles) - MOST_ROLES} more", style="dim"))
        parts.append(table)
        measured = [(k.removeprefix("eval/"), v) for k, v in self._history.items() if k.startswith("eval/")]
        if measured:
            grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
            grid.add_column("measured", overflow="ellipsis", no_wrap=True, max_width=30 if wide else 16)
            grid.add_column("first", justify="right")
            grid.add_column("now", justify="right")
            if wide:
                grid.add_column("", no_wrap=True, style="cyan")
            for name, values in measured[:MOST_ROLES]:
                line = [Text(name), f"{values[0]:.3f}", f"[bold]{values[-1]:.3f}"]
                grid.add_row(*line, *([sparkline(values, 30)] if wide else []))
            parts += [Text(), grid]
        parts += [Text(), self._facts(record, wide)]
        return Panel(Group(*parts), title=Text(self.title), expand=False, width=min(width, 100))

    def _bar(self, record: Mapping[str, Any], width: int) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 2, 0, 0))
        step = int(record["step"])
        bar = ProgressBar(self.steps, step, width=max(6, min(40, width - 42)))
        row.add_row(f"[bold]step {step}/{self.steps}", bar, f"left {self.left()}")
        return row

    def _facts(self, record: Mapping[str, Any], wide: bool) -> Any:
        """Two columns of name and number, or one in a narrow terminal."""
        from rich.table import Table

        facts = [
            ("invalid", _number(record, "invalid_rate", ".2%")),
            ("speed", f"{_number(record, 'tokens_per_second', ',.0f')} tok/s"),
            ("entropy", f"{_number(record, 'entropy', '.3f')} nats"),
            ("step", f"{_number(record, 'seconds', '.2f')} s"),
            ("KL", f"{_number(record, 'kl', '.3f')} nats"),
            ("play, learn", f"{_number(record, 'seconds_play', '.2f')} s, {_number(record, 'seconds_learn', '.2f')} s"),
            ("gradient", _number(record, "grad_norm", ".3f")),
            ("weight swap", _milliseconds(record)),
            (
                "staleness",
                f"{_number(record, 'staleness_mean', '.1f')}, most {_number(record, 'staleness_max', '.0f')}",
            ),
            ("memory", memory()),
        ]
        league = record.get("league") or {}
        if league:
            facts += [
                ("league", f"{_number(league, 'members', '.0f')} members, wins {_number(league, 'win_rate', '.0%')}"),
                ("rating", _number(league, "rating", ".1f")),
            ]
        grid = Table.grid(padding=(0, 2, 0, 0))
        for k in range(0, len(facts), 2 if wide else 1):
            cells = [cell for name, value in facts[k : k + (2 if wide else 1)] for cell in (f"[dim]{name}", value)]
            grid.add_row(*cells)
        return grid


def _number(record: Mapping[str, Any], key: str, form: str) -> str:
    return _shown(record.get(key), form)


def _shown(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "-"


def _milliseconds(record: Mapping[str, Any]) -> str:
    value = record.get("seconds_publish")
    return f"{value * 1000:.0f} ms" if isinstance(value, int | float) else "-"


def clock(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    whole = round(seconds)
    minutes = f"{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"


def memory() -> str:
    """Resident memory of this process now or, where the system does not say, at most so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        size = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return f"{size / 2**20:,.0f} MiB"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"{peak / 2**20:,.0f} MiB at most"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A row of eight-step bars, at most `width` of them: where there are more values, each bar is a mean of some."""
    kept = [float(v) for v in values if math.isfinite(v)]
    if not kept:
        return ""
    count = min(width, len(kept))
    edges = [len(kept) * k // count for k in range(count + 1)]
    shown = [sum(kept[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(shown), max(shown)
    if high == low:
        return BARS[0] * count
    return "".join(BARS[round((v - low) / (high - low) * 7)] for v in shown)
