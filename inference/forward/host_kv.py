"""The KV cache of `kv.py` in numpy, for the forward pass that runs in numpy (host_forward.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from inference.forward.host_states import Held, HostStates
from inference.forward.kv import capacity_for, power_of_two

FloatArray = npt.NDArray[np.float32]
HostSnapshot = list[tuple[FloatArray, ...]]
"""Per layer, keys and values (kv_heads, entries, head_dim) of a sequence's prefix; then the layers' states."""


class HostKVCache:
    """Slots for keys and values, (slots, kv_heads, length, head_dim) per layer; capacity grows on demand.

    Args:
        layers: how many layers have keys and values.
        heads: heads of keys and values.
        width: size of a head.
        states: for each layer with states instead, their shapes in one row.
    """

    def __init__(self, layers: int, heads: int, width: int, states: Sequence[Sequence[tuple[int, ...]]] = ()) -> None:
        self.shape = heads, width
        self.states = HostStates(states)
        self.slots = 0
        self.length = 0
        self.keys: list[FloatArray] = []
        self.values: list[FloatArray] = []
        self._layers = layers
        self.reset()

    def reset(self) -> None:
        """Forgets everything, capacity included."""
        self.slots = self.length = 0
        self.states.reset()
        heads, width = self.shape
        self.keys = [np.zeros((0, heads, 0, width), np.float32) for _ in range(self._layers)]
        self.values = [np.zeros((0, heads, 0, width), np.float32) for _ in range(self._layers)]

    def reserve(self, slots: int, length: int) -> None:
        """Makes room for that many slots with that many entries each, keeping the contents."""
        if slots <= self.slots and length <= self.length:
            return
        if slots > self.slots:
            self.slots = power_of_two(slots, 1)
            self.states.reserve(self.slots)
        self.length = max(self.length, capacity_for(length))
        for arrays in (self.keys, self.values):
            for i, old in enumerate(arrays):
                arrays[i] = np.zeros((self.slots, old.shape[1], self.length, old.shape[3]), np.float32)
                arrays[i][: old.shape[0], :, : old.shape[2]] = old

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Copies the first `entries` of slot `source` over slot `destination`, for all (destination, source, entries).

        Every source is read before any destination is written.
        """
        moves = list(moves)
        if not moves:
            return
        self.reserve(max(move[0] for move in moves) + 1, 0)
        targets = {move[0] for move in moves}
        chained = any(move[1] in targets for move in moves)
        for stored in (*self.keys, *self.values):
            read = [stored[source, :, :entries] for _, source, entries in moves]
            for (destination, _, entries), part in zip(moves, [p.copy() for p in read] if chained else read):
                stored[destination, :, :entries] = part
        self.states.copy(moves)

    def snapshot(self, slot: int, entries: int) -> HostSnapshot:
        """A copy of a slot's first entries and its states."""
        states = self.states.snapshot(slot, entries)
        kept = [(k[slot, :, :entries].copy(), v[slot, :, :entries].copy()) for k, v in zip(self.keys, self.values)]
        return [*kept, *states]

    def restore(self, snapshot: HostSnapshot, slots: Iterable[int], entries: int) -> None:
        """Writes the first entries of a snapshot at the beginning of each slot; with states, it has no more entries."""
        ordered: Sequence[int] = list(slots)
        self.reserve(max(ordered) + 1, entries)
        for (keys, values), k, v in zip(snapshot, self.keys, self.values):
            for slot in ordered:
                k[slot, :, :entries] = keys[:, :entries]
                v[slot, :, :entries] = values[:, :entries]
        self.states.restore(snapshot[len(self.keys) :], ordered, entries)

    def hold(self, slot: int) -> tuple[Held, int]:
        """A copy of a slot's states, to continue from here later, and its size in bytes; keys and values stay."""
        return self.states.snapshot(slot), self.bytes_per_row

    def resume(self, held: Held, slot: int, entries: int) -> None:
        """Writes states held after `entries` tokens to a slot that has the keys and values of as many."""
        self.states.restore(held, [slot], entries)

    def scrub(self, slot: int) -> None:
        """Zeroes a slot: a masked weight of 0 times a stored NaN would still be NaN for its next tenant."""
        if slot < self.slots:
            for stored in (*self.keys, *self.values):
                stored[slot] = 0.0
            self.states.scrub(slot)

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a row's states, whatever its length."""
        return self.states.bytes_per_row

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(stored.nbytes for stored in (*self.keys, *self.values)) + self.states.nbytes
