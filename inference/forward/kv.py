"""Keys and values of many sequences in one cache: a slot per row, left aligned, each row with its own length.

Per layer two arrays (slots, kv_heads, length, head_dim). A forward pass works on a *frame*: consecutive slots, the
number of valid entries of each, and how many tokens are fed. Entries beyond a row's position are stale or padding and
are masked, so freeing a row costs nothing, and a batch whose rows differ in length needs no shifting.

The items of `SlotKVCache.layers` have the interface of mlx-lm's `KVCache` (`offset`, `update_and_fetch`, `make_mask`),
which is all that models with plain attention use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

_LENGTH_STEP = 64  # capacity in entries grows in powers of two from here
_SPAN_STEP = 16  # attention reads a multiple of this many entries, so that buffer sizes repeat

Snapshot = list[tuple[mx.array, mx.array]]
"""Per layer keys and values (1, kv_heads, entries, head_dim) of the beginning of a sequence."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Slots low..high-1; offsets (high-low,) entries valid before `fed` tokens are added; span entries to read."""

    low: int
    high: int
    offsets: tuple[int, ...]
    fed: int
    span: int
    start: int | None  # the common offset, when there is one; else the arrays below
    rows: Any = None  # (n, 1) and
    columns: Any = None  # (n, fed): where to scatter
    positions: Any = None  # offsets (n,)


class SlotKVCache:
    """Slots for keys and values; capacity grows on demand, arrays appear at the first write."""

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache(self) for _ in range(layers)]
        self.slots = 0
        self.length = 0
        self.frame: Frame | None = None

    def reserve(self, slots: int, length: int) -> None:
        """Make room for that many slots with that many entries each; keeps what is stored."""
        if slots <= self.slots and length <= self.length:
            return
        self.slots = max(self.slots, power_of_two(slots, 1))
        self.length = max(self.length, capacity_for(length))
        for layer in self.layers:
            layer.resize(self.slots, self.length)

    def open(self, low: int, offsets: Sequence[int], fed: int) -> list[LayerCache]:
        """The cache list for one forward pass that feeds `fed` tokens to each of the slots from `low` on."""
        high = low + len(offsets)
        end = max(offsets) + fed
        self.reserve(high, end)
        start = offsets[0] if len(set(offsets)) == 1 else None
        if start is not None:
            self.frame = Frame(low, high, tuple(offsets), fed, end, start)
        else:
            positions = np.asarray(offsets, dtype=np.int32)
            self.frame = Frame(
                low,
                high,
                tuple(offsets),
                fed,
                min(-(-end // _SPAN_STEP) * _SPAN_STEP, self.length),
                None,
                mx.array(np.arange(low, high, dtype=np.int32)[:, None]),
                mx.array(positions[:, None] + np.arange(fed, dtype=np.int32)),
                mx.array(positions),
            )
        return self.layers

    def arrays(self) -> list[mx.array]:
        """Everything stored, for one `mx.eval`."""
        return [array for layer in self.layers if layer.keys is not None for array in (layer.keys, layer.values)]

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Copy the first `entries` of slot `source` over slot `destination`, for all (destination, source, entries).

        Every source is read before any destination is written.
        """
        moves = sorted(moves)
        if not moves:
            return
        self.reserve(max(move[0] for move in moves) + 1, 0)
        entries = max(move[2] for move in moves)
        sources = mx.array([move[1] for move in moves])
        for layer in self.layers:
            if layer.keys is None:
                continue
            read = [array[:, :, :entries][sources] for array in (layer.keys, layer.values)]
            for low, high, first in _runs([move[0] for move in moves]):
                layer.keys[low:high, :, :entries] = read[0][first : first + high - low]
                layer.values[low:high, :, :entries] = read[1][first : first + high - low]

    def snapshot(self, slot: int, entries: int) -> Snapshot:
        """A copy of a slot's first entries that later writes do not touch. Evaluated."""
        # A layer that attends to another layer's keys stores nothing.
        nothing = mx.zeros((0,))
        # `+ 0` makes new buffers: a view would keep the whole kv alive and forbid in-place writes to it.
        kept = [
            (nothing, nothing)
            if layer.keys is None
            else tuple(stored[slot : slot + 1, :, :entries] + 0 for stored in (layer.keys, layer.values))
            for layer in self.layers
        ]
        mx.eval(kept)
        return kept

    def restore(self, snapshot: Snapshot, slots: Iterable[int], entries: int) -> None:
        """Write the first entries of a snapshot at the beginning of each slot."""
        ordered = sorted(slots)
        self.reserve(ordered[-1] + 1, entries)
        for layer, (keys, values) in zip(self.layers, snapshot, strict=True):
            if not keys.size:
                continue
            layer.allocate(keys, values)
            for low, high, _ in _runs(ordered):
                layer.keys[low:high, :, :entries] = keys[:, :, :entries]
                layer.values[low:high, :, :entries] = values[:, :, :entries]

    def scrub(self, slot: int) -> None:
        """Zero a slot: a masked weight of 0 times a stored NaN would still be NaN for its next tenant."""
        for keys, values in self._pairs():
            keys[slot] = mx.zeros(keys.shape[1:], keys.dtype)
            values[slot] = mx.zeros(values.shape[1:], values.dtype)

    def reset(self) -> None:
        """Forget everything, capacity included."""
        self.slots = self.length = 0
        self.frame = None
        for layer in self.layers:
            layer.keys = layer.values = None

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(array.nbytes for array in self.arrays())

    def _pairs(self) -> Iterator[tuple[mx.array, mx.array]]:
        return ((layer.keys, layer.values) for layer in self.layers if layer.keys is not None)


class LayerCache:
    """One layer's keys and values, as a model's attention sees them during the KV cache's open frame."""

    def __init__(self, kv: SlotKVCache) -> None:
        self._kv = kv
        self.keys: Any = None  # arrays once the model has shown their shape
        self.values: Any = None

    @property
    def _frame(self) -> Frame:
        if self._kv.frame is None:
            raise RuntimeError("no frame is open: call SlotKVCache.open before the model")
        return self._kv.frame

    @property
    def offset(self) -> Any:
        """Position of the first fed token: one number, or one per row (n,); rotary embeddings take both."""
        frame = self._frame
        return frame.start if frame.positions is None else frame.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Store fed keys and values (n, kv_heads, fed, head_dim); return views (n, kv_heads, span, head_dim)."""
        self.allocate(keys, values)
        frame = self._frame
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
        return self.keys[low:high, :, :span], self.values[low:high, :, :span]

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> mx.array | str | None:
        """Boolean mask (n_rows, 1, n, span), or the shorthand for it when all rows are equally long."""
        frame = self._frame
        if frame.start is not None and not return_array and not (window_size and frame.span > window_size):
            return None if n == 1 else "causal"
        if frame.start is not None:
            queries = mx.arange(frame.start, frame.span)[None, None, :, None]
        else:
            queries = frame.columns[:, None, :, None]
        entries = mx.arange(frame.span)
        mask = entries <= queries
        return mask & (entries > queries - window_size) if window_size else mask

    def allocate(self, keys: mx.array, values: mx.array) -> None:
        """Create the arrays at the KV cache's capacity, once the shapes and types of keys and values are known."""
        if self.keys is None:
            slots, length = self._kv.slots, self._kv.length
            self.keys = mx.zeros((slots, keys.shape[1], length, keys.shape[3]), keys.dtype)
            self.values = mx.zeros((slots, values.shape[1], length, values.shape[3]), values.dtype)

    def resize(self, slots: int, length: int) -> None:
        """Move what is stored to larger arrays."""
        if self.keys is None:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = mx.zeros((slots, old.shape[1], length, old.shape[3]), old.dtype)
            new[: old.shape[0], :, : old.shape[2]] = old
            setattr(self, name, new)


def capacity_for(entries: int) -> int:
    """Entries per slot that a KV cache allocates in order to hold this many."""
    return power_of_two(entries, _LENGTH_STEP)


def power_of_two(n: int, least: int) -> int:
    return max(least, 1 << max(n - 1, 0).bit_length())


def _runs(ordered: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(low, high, index of low) for each run of consecutive numbers."""
    first = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            yield ordered[first], ordered[i - 1] + 1, first
            first = i
