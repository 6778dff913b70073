"""How long something took on a machine that may be busy with other things."""

from __future__ import annotations

import time
from pathlib import Path

SCHEDULED = Path("/proc/self/schedstat")
"""Linux's figures of the main thread: nanoseconds on a core, nanoseconds of waiting for one, and turns."""


class Stopwatch:
    """Counts from when it is made: the seconds that have passed, without those in which the main thread was ready to
    go on and others had the cores. So sleeping and waiting count, and a loaded machine does not. Where the system does
    not say it, all seconds count.
    """

    def __init__(self) -> None:
        self._start = _now()

    @property
    def seconds(self) -> float:
        return _now() - self._start


def _now() -> float:
    waited = int(SCHEDULED.read_text().split()[1]) / 1e9 if SCHEDULED.exists() else 0.0
    return time.monotonic() - waited
