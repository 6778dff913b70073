"""How far an evaluation is, on standard error: one line that changes on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_SECONDS = 0.2
FIRST_SECONDS, NEXT_SECONDS = 10.0, 30.0
"""When the first line is written where there is no terminal, and how long it is from one to the next."""


class ProgressLine:
    """Tells finished, wanted and lost games; called as often as one likes.

    Args:
        file: where to; standard error by default.
        clock: seconds.
    """

    def __init__(self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.file, self.clock = sys.stderr if file is None else file, clock
        self.terminal = self.file.isatty()
        self._began = self._next = clock()
        self._next += TERMINAL_SECONDS if self.terminal else FIRST_SECONDS
        self._first: int | None = None
        self._open = False

    def __call__(self, done: int, wanted: int, lost: int = 0) -> None:
        """Says how far it is, if it is time to."""
        now = self.clock()
        if self._first is None:  # what was kept of an earlier command says nothing about the speed
            self._first = done
        if now < self._next and not (self._open and done >= wanted):
            return
        self._next = now + (TERMINAL_SECONDS if self.terminal else NEXT_SECONDS)
        said = f"{done}/{wanted} games"
        played, spent = done - self._first, now - self._began
        if played > 0 and done < wanted:
            said += f", about {duration((wanted - done) * spent / played)} left"
        if lost:
            said += f"; {lost} lost to failing endpoints"
        if self.terminal:
            print(f"\r{said}\x1b[K", end="", file=self.file, flush=True)
            self._open = True
        else:
            print(f"{said} (after {duration(spent)})", file=self.file, flush=True)

    def close(self) -> None:
        """Ends the line of a terminal."""
        if self._open:
            print(file=self.file, flush=True)
            self._open = False


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
