"""Controls what glibc does with memory that MLX frees. No-ops on other systems."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import sys
from collections.abc import Iterator
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # from malloc.h
_KEPT, _MAPPED = 1 << 30, 65536
_HUGE = 2 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Lets the allocator reuse what MLX frees, up to 1 GiB, instead of returning it to the kernel after each operation.

    Fetching those pages again, zeroed, is a fifth of the CPU time of a training step.
    """
    mallopt = _of_the_c_library("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most glibc accepts; larger arrays come from the kernel as before
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


@contextlib.contextmanager
def in_huge_pages(count: int) -> Iterator[None]:
    """Lets `count` bytes of what this thread allocates in the block lie in pages of 2 MiB.

    The kernel hands out memory page by page: 600,000 small ones for a model of 600 million weights. Where the system
    allows no huge pages, nothing changes.
    """
    mallopt = _of_the_c_library("mallopt")
    if mallopt is None or count < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        yield
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    mallopt(_M_TRIM_THRESHOLD, -1)
    mallopt(_M_MMAP_MAX, 0)  # large arrays come from the heap as well
    try:
        # Reserved, advised and given back untouched: the next arrays are cut from it.
        if (start := libc.malloc(ctypes.c_size_t(count + _HUGE))) is not None:
            first = start + -start % mmap.PAGESIZE
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(count), mmap.MADV_HUGEPAGE)
            libc.free(ctypes.c_void_p(start))
        yield
    finally:
        mallopt(_M_MMAP_MAX, _MAPPED)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


def return_freed_memory() -> None:
    """Returns unused memory to the system, including gaps between arrays.

    For a process that runs for days: otherwise it keeps its peak usage, plus every gap that the next array does not fit
    into.
    """
    malloc_trim = _of_the_c_library("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_the_c_library(name: str) -> Any:
    """A libc function; None if the library lacks it or the system is not Linux."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
