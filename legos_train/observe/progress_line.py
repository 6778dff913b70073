"""Progress of long work: on a terminal a growing bar, else occasional lines; or a text that something else shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_SECONDS, BAR = 0.2, 20
FIRST_SECONDS, NEXT_SECONDS = 10.0, 30.0
"""Without a terminal: seconds until the first line, and between lines."""


class ProgressLine:
    """Reports progress; may be called at any rate.

    Args:
        unit: what is counted, such as games.
        file: where to write; standard error by default.
        clock: gives the time in seconds.
        bar: whether to draw a bar that is overwritten; by default on a terminal.
        show: called with the text, as often as a bar is drawn, instead of writing anything.

    Attributes:
        due: when the next text is written.
    """

    def __init__(
        self,
        unit: str,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        bar: bool | None = None,
        show: Callable[[str], None] | None = None,
    ):
        self.unit, self.file, self.clock, self.show = unit, sys.stderr if file is None else file, clock, show
        self.terminal = show is not None or (self.file.isatty() if bar is None else bar)
        self._began = self.due = clock()
        self.due += TERMINAL_SECONDS if self.terminal else FIRST_SECONDS
        self._first: int | None = None
        self._open = False

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Writes the progress if it is time to, with a note at the end."""
        now = self.clock()
        if self._first is None:  # work of an earlier command does not count for the speed
            self._first = done
        if now < self.due and not (self._open and done >= total):
            return
        self.due = now + (TERMINAL_SECONDS if self.terminal else NEXT_SECONDS)
        text = f"{done}/{total} {self.unit}"
        played, spent = done - self._first, now - self._began
        if played > 0 and done < total:
            text += f", about {duration((total - done) * spent / played)} left"
        text += note
        if self.show is not None:
            self.show(text)
        elif self.terminal:
            filled = BAR * done // max(total, 1)
            print(f"\r{'━' * filled}{'╌' * (BAR - filled)} {text}\x1b[K", end="", file=self.file, flush=True)
            self._open = True
        else:
            print(f"{text} (after {duration(spent)})", file=self.file, flush=True)

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self._open:
            print(file=self.file, flush=True)
            self._open = False


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
