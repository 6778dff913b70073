"""Keys and values of one attention layer, a slot per row: the interface of mlx-lm's `KVCache` over an open frame.

Models with plain attention use `offset`, `update_and_fetch` and `make_mask`. A sliding window is not a shorter cache
here but a shorter view: entries that have left every row's window are neither read nor masked, and stay in place, so
rows split, return to a cached prefix and end the same way with and without a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

SPAN_STEP = 16  # attention reads a multiple of this many entries, so that buffer sizes repeat

Part = tuple[mx.array, ...]
"""A layer's part of one sequence's prefix; each array has a first axis of 1."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Slots low..high-1; offsets (high-low,) entries valid before `fed` tokens are added; span entries to read."""

    low: int
    high: int
    offsets: tuple[int, ...]
    fed: int
    span: int
    start: int | None  # the common offset, if there is one; else the arrays below
    rows: Any = None  # (n, 1) and
    columns: Any = None  # (n, fed): where to scatter
    positions: Any = None  # offsets (n,)

    @property
    def fresh(self) -> bool:
        """Whether every row is at its start."""
        return self.start == 0


class Slots(Protocol):
    """What a layer needs to know about its cache."""

    slots: int
    length: int
    mask_axes: int

    @property
    def frame(self) -> Frame | None: ...


def opened(kv: Slots) -> Frame:
    """The open frame. RuntimeError if there is none."""
    if kv.frame is None:
        raise RuntimeError("no frame is open: call SlotKVCache.open before the model")
    return kv.frame


class LayerCache:
    """One layer's keys and values (slots, kv_heads, length, head_dim).

    Args:
        kv: the cache that the layer is part of.
        window: how many entries a query sees at most, its own included; None for all.
    """

    def __init__(self, kv: Slots, window: int | None = None) -> None:
        self._kv = kv
        self.window = window
        self.keys: Any = None  # arrays once the model has shown their shape
        self.values: Any = None

    @property
    def offset(self) -> Any:
        """Position of the first fed token: one number, or one per row (n,); rotary embeddings take both."""
        frame = opened(self._kv)
        return frame.start if frame.positions is None else frame.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Stores fed keys and values (n, kv_heads, fed, head_dim); returns views (n, kv_heads, entries, head_dim)."""
        self.allocate(keys, values)
        frame = opened(self._kv)
        low, high, span = frame.low, frame.high, frame.span
        if frame.start is not None:
            self.keys[low:high, :, frame.start : span] = keys
            self.values[low:high, :, frame.start : span] = values
        elif frame.fed == 1:
            rows, columns = frame.rows[:, 0], frame.columns[:, 0]
            self.keys[rows, :, columns] = keys[:, :, 0]
            self.values[rows, :, columns] = values[:, :, 0]
        else:
            self.keys[frame.rows, :, frame.columns] = keys.transpose(0, 2, 1, 3)
            self.values[frame.rows, :, frame.columns] = values.transpose(0, 2, 1, 3)
        first = self._first(frame)
        return self.keys[low:high, :, first:span], self.values[low:high, :, first:span]

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> mx.array | str | None:
        """Boolean mask over the views (n_rows, 1, n, entries), or mlx-lm's shorthand when all rows are equally long.

        Rows that differ in length get one more axis of 1 after the first where `SlotKVCache.mask_axes` is 2.
        """
        frame = opened(self._kv)
        window = min(window_size or frame.span, self.window or frame.span)
        first = self._first(frame)
        if frame.start is not None and not return_array and frame.span - first <= window:
            return None if n == 1 else "causal"
        if frame.start is not None:
            queries = mx.arange(frame.start, frame.span)[None, None, :, None]
        else:
            queries = frame.columns[:, None, :, None]
            if self._kv.mask_axes == 2:
                queries = queries[:, None]
        entries = mx.arange(first, frame.span)
        mask = entries <= queries
        return mask & (entries > queries - window) if window < frame.span - first else mask

    def _first(self, frame: Frame) -> int:
        """The first entry that some row of the frame still sees."""
        if self.window is None:
            return 0
        first = max(min(frame.offsets) - self.window + 1, 0)
        return first if frame.start is not None else first // SPAN_STEP * SPAN_STEP

    def allocate(self, keys: mx.array, values: mx.array) -> None:
        """Creates the arrays at the KV cache's capacity, once the shapes and types of keys and values are known."""
        if self.keys is None:
            slots, length = self._kv.slots, self._kv.length
            self.keys = mx.zeros((slots, keys.shape[1], length, keys.shape[3]), keys.dtype)
            self.values = mx.zeros((slots, values.shape[1], length, values.shape[3]), values.dtype)

    def resize(self, slots: int, length: int) -> None:
        """Moves the contents to larger arrays."""
        if self.keys is None:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = mx.zeros((slots, old.shape[1], length, old.shape[3]), old.dtype)
            new[: old.shape[0], :, : old.shape[2]] = old
            setattr(self, name, new)

    def arrays(self) -> list[mx.array]:
        """The stored arrays; none for a layer that attends to another layer's keys."""
        return [] if self.keys is None else [self.keys, self.values]

    def copy(self, sources: mx.array, destinations: Sequence[int], entries: int) -> None:
        """Copies the first entries of slots over others; destinations are in ascending order."""
        for stored in self.arrays():
            read = stored[:, :, :entries][sources]
            for low, high, first in runs(destinations):
                stored[low:high, :, :entries] = read[first : first + high - low]

    def snapshot(self, slot: int, entries: int) -> Part:
        """A copy of a slot's first entries that later writes do not touch."""
        # `+ 0` makes new buffers: a view would keep the whole cache alive and prevent in-place writes to it.
        return tuple(stored[slot : slot + 1, :, :entries] + 0 for stored in self.arrays())

    def restore(self, part: Part, slots: Sequence[int], entries: int) -> None:
        """Writes the first entries of a snapshot to the start of slots, given in ascending order."""
        if not part:
            return
        self.allocate(*part)
        for stored, kept in zip(self.arrays(), part, strict=True):
            for low, high, _ in runs(slots):
                stored[low:high, :, :entries] = kept[:, :, :entries]

    def scrub(self, slot: int) -> None:
        """Zeroes a slot: a masked weight of 0 times a stored NaN would still be NaN for its next tenant."""
        for stored in self.arrays():
            stored[slot] = mx.zeros(stored.shape[1:], stored.dtype)

    def reset(self) -> None:
        """Forgets everything."""
        self.keys = self.values = None


def runs(ordered: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(low, high, index of low) for each run of consecutive numbers."""
    first = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            yield ordered[first], ordered[i - 1] + 1, first
            first = i
