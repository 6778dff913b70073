"""Recurrent states and convolution tails in numpy, a slot per row, for the forward pass that runs in numpy.

As in `state_slots.py`, a state is valid at one position only. It is updated in place, so each slot knows how many
tokens its states have seen and refuses to continue from any other number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Held = list[tuple[FloatArray, ...]]
"""Per layer, the states of one sequence, each (1, ...)."""


class HostStates:
    """The states of every layer that has some.

    Args:
        shapes: for each such layer, the shape of each of its states in one row.
    """

    def __init__(self, shapes: Sequence[Sequence[tuple[int, ...]]]) -> None:
        self._shapes = shapes
        self._seen: dict[int, int] = {}  # how many tokens a slot's states cover
        self.layers: list[tuple[FloatArray, ...]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets everything, capacity included."""
        self._seen.clear()
        self.layers = [tuple(np.zeros((0, *shape), np.float32) for shape in layer) for layer in self._shapes]

    def reserve(self, slots: int) -> None:
        """Makes room for that many slots, keeping the contents."""
        grown = []
        for layer in self.layers:
            new = tuple(np.zeros((slots, *old.shape[1:]), np.float32) for old in layer)
            for old, larger in zip(layer, new, strict=True):
                larger[: len(old)] = old
            grown.append(new)
        self.layers = grown

    def open(self, low: int, starts: Sequence[int]) -> None:
        """Begins to feed rows from slot `low` on that have `starts` tokens; their states are unusable until `close`.

        RuntimeError if the states of a slot are not those after that many tokens.
        """
        if not self._shapes:
            return
        for slot, start in enumerate(starts, start=low):
            seen = self._seen.pop(slot, None)
            if start and seen != start:
                raise RuntimeError(f"slot {slot} has seen {seen} tokens, not the {start} it should continue from")
            if not start:
                self.scrub(slot)

    def close(self, low: int, ends: Sequence[int]) -> None:
        """The rows from slot `low` on have been fed and have `ends` tokens now."""
        if self._shapes:
            self._seen.update(enumerate(ends, start=low))

    def copy(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Copies the states of slot `source` over those of `destination`, for all (destination, source, entries)."""
        destinations, sources = [move[0] for move in moves], [move[1] for move in moves]
        for layer in self.layers:
            for stored in layer:
                stored[destinations] = stored[sources]
        self._seen.update({to: self._seen.get(source, -1) for to, source in zip(destinations, sources)})

    def snapshot(self, slot: int, entries: int | None = None) -> Held:
        """Copies of a slot's states. RuntimeError if they are not those after `entries` tokens."""
        if self._shapes and entries is not None and self._seen.get(slot) != entries:
            raise RuntimeError(f"slot {slot} has seen {self._seen.get(slot)} tokens, not the {entries} to be kept")
        return [tuple(stored[slot : slot + 1].copy() for stored in layer) for layer in self.layers]

    def restore(self, held: Held, slots: Iterable[int], entries: int) -> None:
        """Writes states after `entries` tokens to slots."""
        chosen = list(slots)
        for layer, kept in zip(self.layers, held, strict=True):
            for stored, state in zip(layer, kept, strict=True):
                stored[chosen] = state
        self._seen.update((slot, entries) for slot in chosen)

    def scrub(self, slot: int) -> None:
        """Zeroes a slot."""
        self._seen.pop(slot, None)
        for layer in self.layers:
            for stored in layer:
                stored[slot] = 0.0

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a row's states."""
        return sum(4 * int(np.prod(shape)) for layer in self._shapes for shape in layer)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(stored.nbytes for layer in self.layers for stored in layer)
