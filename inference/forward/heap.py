"""What glibc does with the memory that MLX frees. Elsewhere these are no-ops."""

from __future__ import annotations

import ctypes
import functools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


@functools.cache
def keep_freed_memory() -> None:
    """Let the allocator reuse what MLX frees, up to 1 GiB, instead of returning it to the kernel after every operation.

    Fetching those pages again, zeroed, is a fifth of the CPU time of a training step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most glibc accepts; larger arrays come from the kernel as before
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def return_freed_memory() -> None:
    """Give back what is kept and not in use, gaps between arrays included: some 15 ms for 100 MiB.

    For a process that runs for days: what it keeps is otherwise the most it ever needed, and grows with every gap that
    the next array does not fit into.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
