"""The fallback, for caches without slots and models without batches: one of mlx-lm's own caches per slot.

Rows run one by one, share no prefixes and are never split, so any architecture that mlx-lm runs is served correctly, if
not fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from inference.adapters import AdapterBank
from inference.forward.kv import capacity_for
from inference.forward.mlx_forward import Fed, Logits


class SoloCaches:
    """A list of prompt caches, one per slot, and how many tokens each has seen."""

    def __init__(self, make: Callable[[], list[Any]]) -> None:
        self._make = make
        self.slots = self.length = 0
        self.caches: dict[int, list[Any]] = {}
        self._entries: dict[int, int] = {}

    def at(self, slot: int, entries: int) -> list[Any]:
        """The cache of a slot that has seen `entries` tokens; a new one for 0.

        The slot must not be used again until `mark` is called: a failed forward pass may leave a half-written state.
        RuntimeError if the slot holds something else, since nothing else would reveal a wrong state.
        """
        stored = self._entries.pop(slot, None)
        if entries == 0:
            self.caches[slot] = self._make()
        elif stored != entries:
            raise RuntimeError(f"slot {slot} has seen {stored} tokens, not the {entries} it should continue from")
        return self.caches[slot]

    def mark(self, slot: int, entries: int) -> None:
        """The slot's cache has now seen that many tokens."""
        self._entries[slot] = entries

    def reserve(self, slots: int, length: int) -> None:
        """Caches grow by themselves."""
        self.slots, self.length = max(self.slots, slots), max(self.length, length)

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Rows that move to another slot take their cache along; without branches there are no copies."""
        moves = list(moves)
        for by_slot in (self.caches, self._entries):
            moved: dict[int, Any] = {destination: by_slot.pop(source, None) for destination, source, _ in moves}
            by_slot.update(moved)

    def snapshot(self, slot: int, entries: int) -> Any:
        """Never called: prefixes are not shared."""
        raise NotImplementedError("a cache that is not plain keys and values has no snapshots")

    def restore(self, snapshot: Any, slots: Iterable[int], entries: int) -> None:
        """Never called: prefixes are not shared."""
        raise NotImplementedError("a cache that is not plain keys and values has no snapshots")

    def scrub(self, slot: int) -> None:
        """Forgets a slot."""
        self.caches.pop(slot, None)
        self._entries.pop(slot, None)

    def reset(self) -> None:
        """Forgets everything."""
        self.slots = self.length = 0
        self.caches.clear()
        self._entries.clear()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(getattr(layer, "nbytes", 0) for cache in self.caches.values() if cache for layer in cache)


class SoloForward:
    """Runs any model, one row at a time."""

    name = "row by row"
    batches, pads, ahead = False, True, False
    stateful = False  # whatever the model has, its rows are never truncated or copied
    bytes_per_row = 0

    def __init__(self, model: nn.Module, bank: AdapterBank) -> None:
        self.model, self.bank = model, bank
        self.make_caches: Callable[[], list[Any]] = partial(make_prompt_cache, model)
        kv = self.new_kv()
        self.first = self(kv, Fed(0, [0], np.zeros((1, 2), dtype=np.int32), [bank.base]))
        """Logits of the token 0 twice."""
        self.vocab = self.first.shape[-1]
        self.bytes_per_entry = max(1, sum(_bytes_per_entry(layer) for layer in kv.caches[0]))

    def new_kv(self) -> SoloCaches:
        """An empty KV cache."""
        return SoloCaches(self.make_caches)

    def __call__(self, kv: SoloCaches, fed: Fed) -> Logits:
        """See `Forward`; without `last` all rows must be equally long."""
        low, offsets, _, adapters, last, head = fed
        tokens, outputs = np.asarray(fed.tokens), []
        for i, adapter in enumerate(adapters):
            width = tokens.shape[1] if last is None else last[i] + 1  # padding would enter the state
            self.bank.select([adapter], width)
            slot, start = low + i, offsets[i]
            cache = kv.at(slot, start)
            row = mx.array(tokens[i : i + 1, :width])
            if last is not None and (width > 1 or not head):
                # Logits that are not evaluated are not computed: only a prompt's last token pays for the head.
                silent = row[:, :-1] if head else row
                self.model(silent, cache=cache)
                mx.eval([layer.state for layer in cache])
                row = row[:, -1:]
            if head:
                out = self.model(row, cache=cache)[0]
                out = (out if last is None else out[-1]).astype(mx.float32)
                mx.eval(out, [layer.state for layer in cache])
                outputs.append(np.asarray(out))
            kv.mark(slot, start + width)
        return np.stack(outputs) if head else np.zeros(0, np.float32)

    def submit(self, *arguments: Any, **options: Any) -> mx.array:
        """Never called: mlx-lm's own caches cannot be rewound."""
        raise NotImplementedError("lookahead is not supported row by row")


def _bytes_per_entry(cache: Any) -> int:
    """Memory per token: keys and values are allocated in steps, and a recurrent state costs the same at any length.

    The total is spread over the shortest row the engine plans with, so that it is never underestimated.
    """
    parts = getattr(cache, "caches", None)
    if parts is not None:
        return sum(_bytes_per_entry(part) for part in parts)
    keys = getattr(cache, "keys", None)
    if isinstance(keys, mx.array) and keys.ndim > 2:
        return int(cache.nbytes) // int(keys.shape[2])
    return -(-int(cache.nbytes) // capacity_for(1))
