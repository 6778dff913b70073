"""Elementwise work on many rows: a part at a time that stays in the cache, on as many threads as matrix products.

Between the products of a long prompt every pass over its rows reads and writes memory, unless all passes over some rows
are done before the next rows are touched. Numbers do not depend on how rows are divided.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from inference.forward import fastblas

Work = Callable[[slice], object]

PART = 1 << 15
"""Numbers processed at a time: 128 KiB, so that a few arrays of them fit a level 2 cache."""
LARGE = 1 << 18
"""Numbers that are worth another thread."""


def in_parts(work: Work, rows: int, width: int) -> None:
    """Calls `work` with slices that cover `rows` rows of `width` numbers."""
    threads = fastblas.threads() if rows * width >= LARGE else 1
    edges = [rows * i // threads for i in range(threads + 1)]
    size = max(1, PART // max(1, width))
    waiting = [pool(threads - 1).submit(_each, work, edges[i], edges[i + 1], size) for i in range(1, threads)]
    _each(work, edges[0], edges[1], size)
    for future in waiting:
        future.result()


def _each(work: Work, first: int, last: int, size: int) -> None:
    with np.errstate(all="ignore"):  # each thread has settings of its own; the caller checks the results
        for start in range(first, last, size):
            work(slice(start, min(start + size, last)))


@lru_cache(maxsize=1)
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads besides the caller's, for work that waits for nothing."""
    return ThreadPoolExecutor(threads, thread_name_prefix="legos-products")


if hasattr(os, "register_at_fork"):  # a child has the pool, but none of its threads
    os.register_at_fork(after_in_child=pool.cache_clear)
