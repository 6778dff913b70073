"""Ctrl-C and SIGTERM end a run cleanly: the first asks and the loop answers, the second ends the process at once.

with Stopping() as stopping:
    for step in ...:
        play(..., stopping.check)   # raises Stopped between two decoding steps
        ...
        stopping.check()
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from legos_train.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Takes the two signals for as long as it is entered. Outside the main thread it does nothing: Python delivers
    signals to the main thread only, and a run inside somebody's thread is not ours to stop.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.signal: int | None = None
        """The first signal that came."""
        self._before: dict[int, Any] = {}
        self._pid = os.getpid()

    @property
    def asked(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raises `Stopped` when a signal has come. Call it only where the state of the run is whole."""
        if self.signal is not None:
            raise Stopped(self.signal)

    def __enter__(self) -> Stopping:
        self._pid = os.getpid()
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None or os.getpid() != self._pid:  # a second one; or a forked child, which just ends
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        if not self.quiet:
            with suppress(OSError):  # no print: the signal may have come in the middle of one
                os.write(2, b"\nstopping; once more to end at once\n")
