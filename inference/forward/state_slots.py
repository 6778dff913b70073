"""Recurrent states and convolution tails of one layer, a slot per row: the interface of mlx-lm's `ArraysCache`.

A state summarises all tokens so far, so it cannot be truncated like keys and values, and a padding token would change
it. Rows are therefore never padded (the runner feeds them in stretches of equal length), a row at its start finds no
state at all, as in a new cache, and going back requires a copy of the earlier state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from inference.forward.layer_slots import Frame, Part, Slots, opened, runs


class StateSlots(ArraysCache):
    """One layer's states: an array (slots, ...) for each entry, once the model has shown its shape.

    Args:
        kv: the cache that the layer is part of.
        size: how many entries the layer has.
    """

    def __init__(self, kv: Slots, size: int) -> None:
        super().__init__(size)
        self.cache: list[Any]
        self._kv = kv
        self._frame: Frame | None = None  # in which
        self._written: set[int] = set()  # these entries were written

    def __getitem__(self, index: int) -> Any:
        """The frame's rows of an entry (n, ...); None at the start of a sequence."""
        frame, stored = opened(self._kv), self.cache[index]
        if stored is None or (frame.fresh and not (frame is self._frame and index in self._written)):
            return None
        return stored if frame.high - frame.low == stored.shape[0] else stored[frame.low : frame.high]

    def __setitem__(self, index: int, value: Any) -> None:
        """Stores an entry of the frame's rows (n, ...). ValueError if its shape has changed."""
        frame, stored = opened(self._kv), self.cache[index]
        if frame is not self._frame:
            self._frame, self._written = frame, set()
        self._written.add(index)
        if stored is None:
            stored = self.cache[index] = mx.zeros((self._kv.slots, *value.shape[1:]), value.dtype)
        if value.shape != (frame.high - frame.low, *stored.shape[1:]):
            raise ValueError(f"a state of shape {value.shape} came after one of shape {stored.shape[1:]} a row")
        if value.shape[0] == stored.shape[0]:
            self.cache[index] = value
        else:
            stored[frame.low : frame.high] = value

    def make_mask(self, N: int) -> None:
        """No mask: there is no padding."""

    def advance(self, N: int) -> None:
        """Does nothing: without padding there are no lengths to track."""

    def resize(self, slots: int, length: int) -> None:
        """Moves the contents to larger arrays; a state has no length."""
        for index, old in enumerate(self.cache):
            if old is not None:
                self.cache[index] = mx.concatenate([old, mx.zeros((slots - old.shape[0], *old.shape[1:]), old.dtype)])

    def arrays(self) -> list[mx.array]:
        """What is stored."""
        return [stored for stored in self.cache if stored is not None]

    def copy(self, sources: mx.array, destinations: Sequence[int], entries: int) -> None:
        """Copies the states of slots over others; destinations are in ascending order."""
        for stored in self.arrays():
            read = stored[sources]
            for low, high, first in runs(destinations):
                stored[low:high] = read[first : first + high - low]

    def snapshot(self, slot: int, entries: int) -> Part:
        """A copy of a slot's state that later writes do not touch."""
        nothing = mx.zeros((1, 0))
        return tuple(nothing if stored is None else stored[slot : slot + 1] + 0 for stored in self.cache)

    def restore(self, part: Part, slots: Sequence[int], entries: int) -> None:
        """Writes a state to slots, given in ascending order."""
        for index, kept in enumerate(part):
            if kept.size == 0:
                continue
            if self.cache[index] is None:
                self.cache[index] = mx.zeros((self._kv.slots, *kept.shape[1:]), kept.dtype)
            for low, high, _ in runs(slots):
                self.cache[index][low:high] = kept

    def cached(self) -> list[mx.array | None]:
        """The current states of all slots: later writes go into new arrays."""
        return [None if stored is None else mx.array(stored) for stored in self.cache]

    def put_back(self, cached: Sequence[mx.array | None], slots: Sequence[int]) -> None:
        """Restores states from `cached` to some slots, in ascending order."""
        for stored, before in zip(self.cache, cached):
            if before is not None:
                for low, high, _ in runs(slots):
                    stored[low:high] = before[low:high]

    def scrub(self, slot: int) -> None:
        """Zeroes a slot, so that no NaN is left in it."""
        for stored in self.arrays():
            stored[slot] = mx.zeros(stored.shape[1:], stored.dtype)

    def reset(self) -> None:
        """Forgets everything."""
        self.cache = [None] * len(self.cache)
        self._frame = None
