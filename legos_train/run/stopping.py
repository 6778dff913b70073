"""Ctrl-C and SIGTERM end a run cleanly: the first signal asks the loop to stop, the second kills the process.

with Stopping() as stopping:
    for step in ...:
        play(..., stopping.check)   # raises Stopped between two decoding steps
        ...
        stopping.check()

If the loop does not respond for `GRACE` seconds (a long evaluation, a backward pass in many parts, code of an
environment), `Stopped` is raised wherever the main thread is. For this a run keeps the state of its last whole step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from legos_train.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a terminated job, and a closed terminal or connection; `nohup` blocks the last of these."""
GRACE = 1.0
"""Seconds within which a run must reach a point where it can stop."""


class Stopping:
    """Handles the signals while it is entered. Outside the main thread it does nothing: Python delivers signals
    only to the main thread, and a run in a caller's thread is the caller's to stop.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.signal: int | None = None
        """The first signal received."""
        self._before: dict[int, Any] = {}
        self._others: tuple[Any, tuple[float, float]] | None = None
        self._pid = os.getpid()

    @property
    def asked(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raises `Stopped` if a signal has arrived."""
        if self.signal is not None:
            self._disarm()
            raise Stopped(self.signal)

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Raises `Stopped` again if cleaning up after it raised something else: interrupted work may not be in a state
        to be cleaned up.
        """
        try:
            yield
        except Exception as error:
            before = error.__context__
            while before is not None and not isinstance(before, Stopped):
                before = before.__context__
            if before is None:
                raise
            raise before from error

    def _arm(self) -> None:
        """Sets an alarm in `GRACE` seconds, replacing one that may already be set."""
        handler = signal.signal(signal.SIGALRM, lambda number, frame: self.check())
        self._others = handler, signal.setitimer(signal.ITIMER_REAL, GRACE)

    def _disarm(self) -> None:
        if self._others is not None and threading.current_thread() is threading.main_thread():
            handler, timer = self._others
            self._others = None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)

    def __enter__(self) -> Stopping:
        self._pid = os.getpid()
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as set by nohup
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._disarm()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None or os.getpid() != self._pid:  # a second one; or a forked child, which just ends
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        self._arm()
        if not self.quiet:
            with suppress(OSError):  # no print: the signal may have interrupted one
                os.write(2, b"\nstopping; once more to end at once\n")
