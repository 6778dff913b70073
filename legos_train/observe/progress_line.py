"""How far some long work is, on standard error: a bar that grows on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_SECONDS, BAR = 0.2, 20
FIRST_SECONDS, NEXT_SECONDS = 10.0, 30.0
"""Without a terminal: seconds until the first line, and from one line to the next."""


class ProgressLine:
    """Reports progress; may be called as often as one likes.

    Args:
        unit: what is counted, such as games.
        file: where to write; standard error by default.
        clock: gives the time in seconds.
    """

    def __init__(self, unit: str, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.unit, self.file, self.clock = unit, sys.stderr if file is None else file, clock
        self.terminal = self.file.isatty()
        self._began = self._next = clock()
        self._next += TERMINAL_SECONDS if self.terminal else FIRST_SECONDS
        self._first: int | None = None
        self._open = False

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Writes how much is done, if it is time to, with a note at the end."""
        now = self.clock()
        if self._first is None:  # what an earlier command did says nothing about the speed
            self._first = done
        if now < self._next and not (self._open and done >= total):
            return
        self._next = now + (TERMINAL_SECONDS if self.terminal else NEXT_SECONDS)
        text = f"{done}/{total} {self.unit}"
        played, spent = done - self._first, now - self._began
        if played > 0 and done < total:
            text += f", about {duration((total - done) * spent / played)} left"
        text += note
        if self.terminal:
            filled = BAR * done // max(total, 1)
            print(f"\r{'━' * filled}{'╌' * (BAR - filled)} {text}\x1b[K", end="", file=self.file, flush=True)
            self._open = True
        else:
            print(f"{text} (after {duration(spent)})", file=self.file, flush=True)

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
