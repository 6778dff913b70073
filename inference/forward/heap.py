"""Controls what glibc does with memory that MLX frees. No-ops on other systems."""

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
    """Return unused memory to the system, including gaps between arrays.

    For a process that runs for days: otherwise it keeps its peak usage, plus every gap that the next array does not fit
    into.
    """
    malloc_trim = _of_the_c_library("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_the_c_library(name: str) -> Any:
    """A libc function; None if the library lacks it or is not Linux's."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
