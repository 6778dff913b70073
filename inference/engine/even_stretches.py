"""Feeding without padding, for models with recurrent states, which padding tokens would corrupt.

Rows are fed in stretches: each row gets as many tokens as the shortest of the batch has left, then the longer rows
continue. Nothing depends on a model's own masks and lengths, and every token is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeVar

import numpy as np

from inference.forward import Fed


class PrefillRow(Protocol):
    """What feeding needs to know about a row."""

    adapter: Any
    slot: int
    pos: int
    pending: Sequence[int]
    draft: Sequence[int]


R = TypeVar("R", bound=PrefillRow)
Run = Callable[[Any, Fed], Any]
"""`Forward`, or a function with its signature that returns another kind of logits."""


def even_stretches(run: Run, kv: Any, rows: Sequence[R], most: int) -> Iterator[tuple[Sequence[R], Any]]:
    """Feeds each row's pending tokens, at most `most` in one pass; yields finished rows with their logits (n, V).

    rows occupy consecutive slots in order.
    """
    fed = dict.fromkeys(range(len(rows)), 0)
    while fed:
        for batch in _batches(rows, fed):
            left = [len(rows[i].pending) - fed[i] for i in batch]
            width = min(*left, max(most // len(batch), 1))
            tokens = np.array([rows[i].pending[fed[i] : fed[i] + width] for i in batch], dtype=np.int32)
            last = [width - 1 if n == width else -1 for n in left]
            done = [i for i, n in zip(batch, left) if n == width]
            offsets, adapters = [rows[i].pos + fed[i] for i in batch], [rows[i].adapter for i in batch]
            logits = run(kv, Fed(rows[batch[0]].slot, offsets, tokens, adapters, last, bool(done)))
            for i in batch:
                fed[i] += width
            for i in done:
                del fed[i]
            if done:
                yield [rows[i] for i in done], logits


def _batches(rows: Sequence[PrefillRow], fed: dict[int, int]) -> list[list[int]]:
    """Neighbours to feed together: fresh rows separate from others, single tokens separate from prompts."""

    def kind(item: tuple[int, int]) -> tuple[int, bool, bool]:
        order, i = item
        return i - order, rows[i].pos + fed[i] == 0, len(rows[i].pending) - fed[i] == 1

    return [[i for _, i in group] for _, group in groupby(enumerate(fed), key=kind)]
