"""Forward passes in MLX, over the arena of `kv.py`: the model's own call, or decoder.py where that is cheaper.

`Forward` is what the runner asks of any of them. Everything is evaluated before it returns, so that an exception
belongs to one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from . import decoder
from .adapters import AdapterBank, Policy
from .kv import Arena

Logits = npt.NDArray[np.float32]
Head = Callable[[mx.array], mx.array]


class AnyArena(Protocol):
    """Keys and values by slot; see `kv.Arena`, `host_kv.HostArena` and `solo_forward.SoloArena`."""

    slots: int
    length: int

    def reserve(self, slots: int, length: int) -> None: ...
    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None: ...
    def snapshot(self, slot: int, entries: int) -> Any: ...
    def restore(self, snapshot: Any, slots: Iterable[int], entries: int) -> None: ...
    def scrub(self, slot: int) -> None: ...
    def reset(self) -> None: ...
    @property
    def nbytes(self) -> int: ...


class Forward(Protocol):
    """A way to run a model. `batches`: several rows in one call are worth while, and slots can share beginnings."""

    vocab: int
    bytes_per_entry: int
    batches: bool

    def arena(self) -> Any: ...

    def __call__(
        self,
        arena: Any,
        low: int,
        offsets: Sequence[int],
        tokens: npt.NDArray[np.int32],
        policies: Sequence[Policy],
        last: Sequence[int] | None = None,
        *,
        head: bool = True,
    ) -> Logits: ...


class MlxForward:
    """Models whose layers all use mlx-lm's plain `KVCache`."""

    batches = True

    def __init__(self, model: nn.Module, bank: AdapterBank) -> None:
        self.model, self.bank = model, bank
        self._layers = len(make_prompt_cache(model))
        self._head: Head | None = None
        self.own_decoder = False
        self.vocab, self.bytes_per_entry = self._probe()
        self.own_decoder = self._head is not None and decoder.fits(model) and self._decoder_agrees()

    def arena(self) -> Arena:
        """An empty arena."""
        return Arena(self._layers)

    def __call__(
        self,
        arena: Arena,
        low: int,
        offsets: Sequence[int],
        tokens: npt.NDArray[np.int32],
        policies: Sequence[Policy],
        last: Sequence[int] | None = None,
        *,
        head: bool = True,
    ) -> Logits:
        """Feed tokens (n, L) to slots low..low+n-1, of which the first `offsets` (n,) entries are valid.

        Returns float32 logits (n, V) at positions `last` (n,), or (n, L, V) when it is None; without head, hidden
        states.
        """
        self.bank.select(policies)
        cache = arena.open(low, offsets, tokens.shape[1])
        inputs = mx.array(tokens)
        if self.own_decoder and self._head is not None:
            out = decoder.hidden_states(self.model.model, inputs, arena, last)
        else:
            body = self.model if self._head is None else self.model.model
            out = body(inputs, cache=cache)
            if last is not None and tokens.shape[1] > 1:
                out = out[mx.arange(len(last)), mx.array(list(last))][:, None]
        if self._head is not None and head:
            out = self._head(out)
        out = (out[:, 0] if last is not None else out).astype(mx.float32)
        mx.eval(out, arena.arrays())
        return np.asarray(out)

    def _probe(self) -> tuple[int, int]:
        """Vocabulary size and bytes per stored entry; also finds a head that may be applied to some positions only.

        `model.model` followed by the output projection is what most architectures do; some scale or cap in between, so
        the short cut is taken only if it gives the full call's numbers.
        """
        arena = self.arena()
        tokens = np.zeros((1, 2), dtype=np.int32)
        full = self(arena, 0, [0], tokens, [self.bank.base])
        vocab, entry_bytes = full.shape[-1], arena.nbytes // (arena.slots * arena.length)
        for head in _possible_heads(self.model):
            out = np.asarray(head(self.model.model(mx.array(tokens))).astype(mx.float32))
            if out.shape == full.shape and np.allclose(out, full, rtol=1e-3, atol=1e-3):
                self._head = head
                break
        return vocab, entry_bytes

    def _decoder_agrees(self) -> bool:
        found = []
        for self.own_decoder in (False, True):
            found.append(trial(self, self.bank.base))
        return alike(*found)


def trial(forward: Forward, base: Policy) -> list[Logits]:
    """Logits for two rows of different lengths, in prefill and in decode."""
    tokens = np.random.default_rng(0).integers(0, min(forward.vocab, 1000), (2, 9), dtype=np.int32)
    arena, found = forward.arena(), []
    for offsets, low, high, last in (([0, 0], 0, 6, [5, 3]), ([6, 4], 6, 8, None), ([8, 6], 8, 9, [0, 0])):
        found.append(forward(arena, 0, offsets, tokens[:, low:high], [base] * 2, last))
    return found


def alike(a: Sequence[Logits], b: Sequence[Logits]) -> bool:
    """Two trials are equal up to rounding in float32."""
    tolerance = 1e-4 * (1.0 + max(float(np.abs(x).max()) for x in (*a, *b)))
    return all(bool(np.abs(x - y).max() <= tolerance) for x, y in zip(a, b, strict=True))


def _possible_heads(model: nn.Module) -> list[Head]:
    """What may turn the hidden states of `model.model` into logits."""
    body = getattr(model, "model", None)
    untied = getattr(model, "lm_head", None)
    tied = getattr(getattr(body, "embed_tokens", None), "as_linear", None)
    return [head for head in (untied, tied) if body is not None and callable(head)]
