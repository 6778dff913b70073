"""What glibc does with the memory that MLX frees. Elsewhere these are no-ops."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


@functools.cache
def keep_freed_memory() -> None:
    """Let the allocator reuse what MLX frees, up to 1 GiB, instead of returning it to the kernel after every operation.

    Fetching those pages again, zeroed, is a fifth of the CPU time of a training step.
    """
    mallopt = _of_the_c_library("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most glibc accepts; larger arrays come from the kernel as before
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def return_freed_memory() -> None:
    """Give back what is kept and not in use, gaps between arrays included.

    For a process that runs for days: what it keeps is otherwise the most it ever needed, and grows with every gap that
    the next array does not fit into.
    """
    malloc_trim = _of_the_c_library("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_the_c_library(name: str) -> Any:
    """None where the library has no such function, or is not Linux's."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
