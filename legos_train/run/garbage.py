"""Garbage collection during a run: less frequent passes over fewer objects.

Python looks for unreachable cycles after every 700 new objects, again and again among those that survive: a fifth of
the time spent playing small games. A step keeps what it allocates until its end and leaves few cycles behind.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_alone = threading.Lock()
YOUNG = 50_000
"""Number of new objects that triggers a pass; memory held by cycles waits for it."""


def any_frozen() -> bool:
    """Whether objects are excluded from passes; this counts them all."""
    return gc.get_freeze_count() > 0


@contextmanager
def rarely_collected() -> Iterator[None]:
    """In this context, objects that already exist are excluded from passes, and passes are less frequent.

    Objects frozen by the caller stay frozen; `gc.unfreeze` would thaw them too, so nothing is added then.
    """
    if not _alone.acquire(blocking=False):  # another run of this process has set it, and sets it back
        yield
        return
    before, frozen = gc.get_threshold(), any_frozen()
    if not frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
        _alone.release()
