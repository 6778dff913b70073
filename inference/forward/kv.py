"""Keys, values and states of many sequences in one cache: a slot per row, left aligned, each row with its own length.

A forward pass works on a *frame*: consecutive slots, the number of valid entries of each, and how many tokens are fed.
Keys and values beyond a row's position are stale or padding and are masked, so freeing a row costs nothing, and a batch
whose rows differ in length needs no shifting. States are valid at one position only; the cache tracks it, and refuses a
frame that would continue from another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from inference.forward.layer_slots import SPAN_STEP, Frame, LayerCache, Part
from inference.forward.state_slots import StateSlots

_LENGTH_STEP = 64  # capacity in entries grows in powers of two from here

Snapshot = list[Part]
"""Each layer's part of a sequence's prefix."""


class Mark(NamedTuple):
    """States at one time: each layer's, and how many tokens each slot's states cover."""

    states: list[list[mx.array | None]]
    seen: dict[int, int]


class SlotKVCache:
    """Slots for a model's caches; capacity grows on demand, arrays appear at the first write.

    Args:
        layers: the model's mlx-lm caches, for their kinds; or the number of layers with plain keys and values.
        mask_axes: number of size-1 axes (heads, groups of heads) over which masks for rows of different lengths are
            broadcast.

    Raises:
        TypeError: there are no slots for a kind of cache.
    """

    def __init__(self, layers: int | Sequence[Any], *, mask_axes: int = 1) -> None:
        templates = [KVCache() for _ in range(layers)] if isinstance(layers, int) else layers
        self.layers = [self._slots_for(template) for template in templates]
        self._parts: list[LayerCache | StateSlots] = [part for layer in self.layers for part in _parts(layer)]
        self._states = [part for part in self._parts if isinstance(part, StateSlots)]
        self._seen: dict[int, int] = {}  # how many tokens a slot's states cover
        self.mask_axes = mask_axes
        self.slots = 0
        self.length = 0
        self.frame: Frame | None = None

    @property
    def plain(self) -> bool:
        """Whether there are only keys and values, without windows."""
        return all(isinstance(layer, LayerCache) and layer.window is None for layer in self.layers)

    @property
    def stateful(self) -> bool:
        """Whether there are states: rows can then be neither padded nor truncated."""
        return bool(self._states)

    def reserve(self, slots: int, length: int) -> None:
        """Makes room for that many slots with that many entries each, keeping the contents."""
        if slots <= self.slots and length <= self.length:
            return
        self.slots = max(self.slots, power_of_two(slots, 1))
        self.length = max(self.length, capacity_for(length))
        for part in self._parts:
            part.resize(self.slots, self.length)

    def open(self, low: int, offsets: Sequence[int], fed: int) -> list[Any]:
        """The cache list for one forward pass that feeds `fed` tokens to each of the slots from `low` on.

        RuntimeError if the states of a slot are not those after `offsets` tokens, since nothing else would reveal it.
        """
        high = low + len(offsets)
        end = max(offsets) + fed
        self.reserve(high, end)
        if self._states:
            self._take_states(low, offsets)
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
                min(-(-end // SPAN_STEP) * SPAN_STEP, self.length),
                None,
                mx.array(np.arange(low, high, dtype=np.int32)[:, None]),
                mx.array(positions[:, None] + np.arange(fed, dtype=np.int32)),
                mx.array(positions),
            )
        return self.layers

    def close(self) -> None:
        """Marks the open frame's forward pass as evaluated: its states are valid."""
        if self._states and self.frame is not None:
            self._seen.update((self.frame.low + i, at + self.frame.fed) for i, at in enumerate(self.frame.offsets))

    def arrays(self) -> list[mx.array]:
        """Everything stored, for one `mx.eval`."""
        return [array for part in self._parts for array in part.arrays()]

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Copies the first `entries` of slot `source` over slot `destination`, for all (destination, source, entries).

        Every source is read before any destination is written. States are copied whole.
        """
        moves = sorted(moves)
        if not moves:
            return
        self.reserve(max(move[0] for move in moves) + 1, 0)
        entries = max(move[2] for move in moves)
        sources = mx.array([move[1] for move in moves])
        for part in self._parts:
            part.copy(sources, [move[0] for move in moves], entries)
        self._seen.update({move[0]: self._seen.get(move[1], -1) for move in moves})

    def snapshot(self, slot: int, entries: int) -> Snapshot:
        """A copy of a slot's first entries and its states, evaluated asynchronously."""
        if self._states and self._seen.get(slot) != entries:
            raise RuntimeError(f"slot {slot} has seen {self._seen.get(slot)} tokens, not the {entries} to be kept")
        kept = [part.snapshot(slot, entries) for part in self._parts]
        mx.async_eval(kept)
        return kept

    def restore(self, snapshot: Snapshot, slots: Iterable[int], entries: int) -> None:
        """Writes the first entries of a snapshot to the start of each slot; with states, the snapshot has no more
        entries.
        """
        ordered = sorted(slots)
        self.reserve(ordered[-1] + 1, entries)
        for part, kept in zip(self._parts, snapshot, strict=True):
            part.restore(kept, ordered, entries)
        self._seen.update((slot, entries) for slot in ordered)

    def hold(self, slot: int) -> tuple[Snapshot, int]:
        """A copy of a slot's states, to continue from here later, and its size in bytes; keys and values stay."""
        held = [part.snapshot(slot, 0) for part in self._states]
        mx.async_eval(held)
        return held, sum(array.nbytes for part in held for array in part)

    def resume(self, held: Snapshot, slot: int, entries: int) -> None:
        """Writes states held after `entries` tokens to a slot that has the keys and values of as many."""
        for part, kept in zip(self._states, held, strict=True):
            part.restore(kept, [slot], 0)
        self._seen[slot] = entries

    def mark(self) -> Mark | None:
        """What `rewind` needs to undo passes from here on; None without states, when there is nothing to undo."""
        if not self._states:
            return None
        return Mark([part.cached() for part in self._states], dict(self._seen))

    def rewind(self, mark: Mark, slots: Sequence[int]) -> None:
        """Restores the states of some slots; keys and values beyond a row's position do not matter."""
        for part, cached in zip(self._states, mark.states, strict=True):
            part.put_back(cached, slots)
        for slot in slots:
            self._seen.pop(slot, None)
            if slot in mark.seen:
                self._seen[slot] = mark.seen[slot]

    def scrub(self, slot: int) -> None:
        """Zeroes a slot."""
        for part in self._parts:
            part.scrub(slot)
        self._seen.pop(slot, None)

    def reset(self) -> None:
        """Forgets everything, capacity included."""
        self.slots = self.length = 0
        self.frame = None
        self._seen.clear()
        for part in self._parts:
            part.reset()

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(array.nbytes for array in self.arrays())

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a row's states, whatever its length; known after the first write."""
        return sum(array.nbytes for part in self._states for array in part.arrays()) // max(self.slots, 1)

    @property
    def bytes_per_entry(self) -> int:
        """Bytes of one entry of keys and values; known after the first write."""
        return (self.nbytes - self.bytes_per_row * self.slots) // max(self.slots * self.length, 1)

    def _slots_for(self, template: Any) -> Any:
        if type(template) is KVCache:
            return LayerCache(self)
        if type(template) is RotatingKVCache and template.keep == 0:
            return LayerCache(self, template.max_size)
        if type(template) is ArraysCache:
            return StateSlots(self, len(template.cache))
        if type(template) is CacheList:
            return CacheList(*(self._slots_for(part) for part in template.caches))
        raise TypeError(f"there are no slots for a {type(template).__name__}")

    def _take_states(self, low: int, offsets: Sequence[int]) -> None:
        """Marks the states unusable until `close`: a failed pass may leave them half written."""
        if 0 in offsets and any(offsets):
            raise RuntimeError(f"rows at offset 0 must be fed separately, got offsets {offsets}")
        for slot, offset in enumerate(offsets, start=low):
            seen = self._seen.pop(slot, None)
            if offset and seen != offset:
                raise RuntimeError(f"slot {slot} has seen {seen} tokens, not the {offset} it should continue from")


def _parts(layer: Any) -> Iterator[Any]:
    if isinstance(layer, CacheList):
        for inner in layer.caches:
            yield from _parts(inner)
    else:
        yield layer


def capacity_for(entries: int) -> int:
    """Entries per slot that a KV cache allocates to hold this many."""
    return power_of_two(entries, _LENGTH_STEP)


def power_of_two(n: int, least: int) -> int:
    return max(least, 1 << max(n - 1, 0).bit_length())
