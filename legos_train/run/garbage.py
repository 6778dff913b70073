"""The garbage collector of a run: rarer passes, over fewer objects.

Python looks for unreachable cycles after every 700 new objects, again and again among those that survive: a fifth of
the time in which small games are played. A step keeps what it makes to its end and leaves few cycles behind.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects after which a pass begins; what cycles hold waits for it."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """While it lasts, what is loaded by now is left out of all passes, and these are rarer.

    What the caller has frozen stays frozen; `gc.unfreeze` would thaw that too, so nothing is added to it.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    gc.collect()
    if not frozen:
        gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
