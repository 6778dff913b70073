"""Models whose state is not plain keys and values (sliding windows, recurrences): one cache of mlx-lm's own per slot.

Rows are run one by one, share no beginnings and are never split, so any architecture that mlx-lm runs is served
correctly, if not fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from .adapters import AdapterBank, Policy
from .mlx_forward import Logits


class SoloArena:
    """A list of prompt caches, one a slot."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.slots = self.length = 0
        self.caches: dict[int, list[Any]] = {}

    def at(self, slot: int, entries: int) -> list[Any]:
        """The cache of a slot; a new one where the slot begins anew."""
        if entries == 0 or slot not in self.caches:
            self.caches[slot] = make_prompt_cache(self._model)
        return self.caches[slot]

    def reserve(self, slots: int, length: int) -> None:
        """Caches grow by themselves."""
        self.slots, self.length = max(self.slots, slots), max(self.length, length)

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Rows that move to another slot take their cache along; there are no copies without branches."""
        moved = {destination: self.caches.pop(source) for destination, source, _ in moves if source in self.caches}
        self.caches.update(moved)

    def snapshot(self, slot: int, entries: int) -> Any:
        """Never asked for: beginnings are not shared."""
        raise NotImplementedError("a cache that is not plain keys and values has no snapshots")

    def restore(self, snapshot: Any, slots: Iterable[int], entries: int) -> None:
        """Never asked for: beginnings are not shared."""
        raise NotImplementedError("a cache that is not plain keys and values has no snapshots")

    def scrub(self, slot: int) -> None:
        """Forget a slot."""
        self.caches.pop(slot, None)

    def reset(self) -> None:
        """Forget everything."""
        self.slots = self.length = 0
        self.caches.clear()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(getattr(layer, "nbytes", 0) for cache in self.caches.values() for layer in cache)


class SoloForward:
    """Any model, a row at a time."""

    batches = False

    def __init__(self, model: nn.Module, bank: AdapterBank) -> None:
        self.model, self.bank = model, bank
        arena = self.arena()
        out = self(arena, 0, [0], np.zeros((1, 2), dtype=np.int32), [bank.base])
        self.vocab = out.shape[-1]
        self.bytes_per_entry = max(1, arena.nbytes // 2)

    def arena(self) -> SoloArena:
        """An empty arena."""
        return SoloArena(self.model)

    def __call__(
        self,
        arena: SoloArena,
        low: int,
        offsets: Sequence[int],
        tokens: npt.NDArray[np.int32],
        policies: Sequence[Policy],
        last: Sequence[int] | None = None,
        *,
        head: bool = True,
    ) -> Logits:
        """As `MlxForward`; without `last` all rows must be equally long."""
        found = []
        for i, policy in enumerate(policies):
            self.bank.select([policy])
            width = tokens.shape[1] if last is None else last[i] + 1  # padding would enter the state
            cache = arena.at(low + i, offsets[i])
            out = self.model(mx.array(tokens[i : i + 1, :width]), cache=cache).astype(mx.float32)
            out = out[0] if last is None else out[0, -1]
            mx.eval(out, [layer.state for layer in cache])
            found.append(np.asarray(out))
        return np.stack(found)
