"""Feed tokens to the model: padded batches over the arena, the head on last positions only, shared beginnings once.

Everything here is evaluated before it returns, one `mx.eval` per batch, so that an exception belongs to one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from . import decoder
from .adapters import AdapterBank, Policy
from .kv import Arena
from .prefix_cache import MIN_PREFIX, PrefixCache, clusters
from .types import UnsupportedModel

Logits = npt.NDArray[np.float32]
Head = Callable[[mx.array], mx.array]


class Fed(Protocol):
    """What the runner needs to know of a row."""

    prompt: tuple[int, ...]
    policy: Any
    slot: int
    pos: int
    pending: Sequence[int]
    cached: int


class Runner:
    """A model, its adapters and its cache of shared beginnings; stateless as to who is being served."""

    def __init__(self, model: nn.Module, bank: AdapterBank, *, prefill_tokens: int, prefix_cache_bytes: int) -> None:
        kinds = {type(cache).__name__ for cache in make_prompt_cache(model) if type(cache) is not KVCache}
        if kinds:
            raise UnsupportedModel(
                f"{type(model).__module__} keeps its state in {', '.join(sorted(kinds))}; the engine serves models "
                "whose layers all use mlx-lm's plain KVCache (llama, qwen2, qwen3 and the like)"
            )
        self.model = model
        self.bank = bank
        self.prefill_tokens = prefill_tokens
        self.prefixes = PrefixCache(prefix_cache_bytes)
        self.layers = len(make_prompt_cache(model))
        self._recent: dict[str, tuple[int, ...]] = {}
        self._head: Head | None = None
        self.own_forward = False
        self.vocab, self.bytes_per_entry = self._probe()
        self.own_forward = self._head is not None and decoder.fits(model) and self._same_forward()

    def drop_caches(self) -> None:
        """Forget shared beginnings."""
        self.prefixes.clear()
        self._recent.clear()

    def feed(self, arena: Arena, rows: Sequence[Fed]) -> Iterator[tuple[Sequence[Fed], Logits]]:
        """Feed each row's pending tokens; yields batches of rows with the logits (n, V) after their last token.

        rows occupy consecutive slots in order. `pos` and `pending` are left for the caller to advance.
        """
        for batch in self._batches(rows):
            width = max(len(row.pending) for row in batch)
            for start in range(0, max(width - self.prefill_tokens, 0), self.prefill_tokens):
                # Only a batch of one can be this wide: feed all but the last stretch without a head.
                self._feed_silently(arena, batch[0], start, start + self.prefill_tokens)
            done = (width - 1) // self.prefill_tokens * self.prefill_tokens if len(batch) == 1 else 0
            tokens = np.zeros((len(batch), width - done), dtype=np.int32)
            for i, row in enumerate(batch):
                tokens[i, : len(row.pending) - done] = row.pending[done:]
            last = [len(row.pending) - done - 1 for row in batch]
            logits = self.forward(
                arena, batch[0].slot, [row.pos + done for row in batch], tokens, [row.policy for row in batch], last
            )
            mx.eval(logits, arena.arrays())
            yield batch, np.asarray(logits)

    def forward(
        self,
        arena: Arena,
        low: int,
        offsets: Sequence[int],
        tokens: npt.NDArray[np.int32],
        policies: Sequence[Policy],
        last: Sequence[int] | None = None,
        *,
        head: bool = True,
    ) -> mx.array:
        """Feed tokens (n, L) to slots low..low+n-1. Lazy.

        Returns float32 logits (n, V) at positions `last`, or (n, L, V) when it is None; without head, hidden states.
        """
        self.bank.select(policies)
        cache = arena.open(low, offsets, tokens.shape[1])
        inputs = mx.array(tokens)
        if self.own_forward and self._head is not None:
            out = decoder.hidden_states(self.model.model, inputs, arena, last)
        else:
            body = self.model if self._head is None else self.model.model
            out = body(inputs, cache=cache)
            if last is not None and tokens.shape[1] > 1:
                out = out[mx.arange(len(last)), mx.array(list(last))][:, None]
        if self._head is not None and head:
            out = self._head(out)
        return (out[:, 0] if last is not None else out).astype(mx.float32)

    def warm(self, arena: Arena, rows: Sequence[Fed]) -> None:
        """Give new rows the keys and values of beginnings they share with each other, or with earlier prompts.

        Sets `pos`, `pending` and `cached` of each row. A beginning shared by two prompts is computed once and kept.
        """
        by_digest: dict[str, list[Fed]] = {}
        for row in rows:
            by_digest.setdefault(row.policy.digest, []).append(row)
        for digest, members in by_digest.items():
            prompts = [row.prompt for row in members]
            recent = self._recent.get(digest)
            # The last prompt of the round before counts as a neighbour: one prompt a round still finds its beginning.
            for indices, shared in clusters(prompts if recent is None else [*prompts, recent]):
                group = [members[i] for i in indices if i < len(members)]
                if group:
                    self._warm_group(arena, digest, group, shared if len(indices) > 1 else 0)
            self._recent[digest] = prompts[-1]

    def _warm_group(self, arena: Arena, digest: str, group: list[Fed], shared: int) -> None:
        shared = min(shared, *(len(row.prompt) - 1 for row in group))
        found = [self.prefixes.longest(digest, row.prompt) for row in group]
        lead: Fed | None = None
        if shared >= MIN_PREFIX and min(length for _, length in found) < shared:
            shortest = min(range(len(group)), key=lambda i: found[i][1])
            lead = group[shortest]
            entry, length = found[shortest]
            if entry is not None:
                arena.restore(entry.snapshot, [lead.slot], length)
            lead.pos = lead.cached = length
            for start in range(length, shared, self.prefill_tokens):
                lead.pending = lead.prompt[start : min(start + self.prefill_tokens, shared)]
                self._feed_silently(arena, lead, 0, len(lead.pending))
                lead.pos += len(lead.pending)
            lead.pending = lead.prompt[shared:]
            entry = self.prefixes.put(digest, lead.prompt[:shared], arena.snapshot(lead.slot, shared))
            found = [(entry, shared) if length < shared else (hit, length) for hit, length in found]
        places: dict[tuple[int, int], list[Fed]] = {}
        entries = {id(entry): entry for entry, _ in found if entry is not None}
        for row, (entry, length) in zip(group, found):
            if entry is not None and row is not lead:
                row.pos = row.cached = length
                row.pending = row.prompt[length:]
                places.setdefault((id(entry), length), []).append(row)
        for (key, length), members in places.items():
            arena.restore(entries[key].snapshot, [row.slot for row in members], length)

    def _feed_silently(self, arena: Arena, row: Fed, start: int, stop: int) -> None:
        """Store keys and values of some pending tokens; no logits."""
        tokens = np.asarray([row.pending[start:stop]], dtype=np.int32)
        hidden = self.forward(arena, row.slot, [row.pos + start], tokens, [row.policy], [stop - start - 1], head=False)
        mx.eval(hidden, arena.arrays())

    def _batches(self, rows: Sequence[Fed]) -> Iterator[Sequence[Fed]]:
        """Consecutive rows to feed together: single tokens apart from prompts, at most half of a batch padding."""
        start, total, width = 0, 0, 0
        for i, row in enumerate(rows):
            n = len(row.pending)
            wider = max(width, n)
            count = i - start + 1
            fits = wider == 1 or (min(width, n) > 1 and wider * count <= self.prefill_tokens)
            if i > start and not (fits and (total + n) * 2 >= wider * count):
                yield rows[start:i]
                start, total, wider = i, 0, n
            total, width = total + n, wider
        if start < len(rows):
            yield rows[start:]

    def _probe(self) -> tuple[int, int]:
        """Vocabulary size and bytes per stored entry; also finds a head that may be applied to some positions only.

        `model.model` followed by the output projection is what most architectures do; some scale or cap in between, so
        the short cut is taken only if it gives the full call's numbers.
        """
        arena = Arena(self.layers)
        tokens = np.zeros((1, 2), dtype=np.int32)
        full = self.forward(arena, 0, [0], tokens, [self.bank.base])
        mx.eval(full, arena.arrays())
        vocab, entry_bytes = full.shape[-1], sum(a.nbytes for a in arena.arrays()) // (arena.slots * arena.length)
        for head in _possible_heads(self.model):
            out = head(self.model.model(mx.array(tokens))).astype(mx.float32)
            if out.shape == full.shape and mx.allclose(out, full, rtol=1e-3, atol=1e-3).item():
                self._head = head
                break
        return vocab, entry_bytes

    def _same_forward(self) -> bool:
        """`decoder.py` gives the model's own logits for rows of different lengths, in prefill and in decode."""
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, min(self.vocab, 1000), (2, 9), dtype=np.int32)
        found = []
        for self.own_forward in (False, True):
            arena = Arena(self.layers)
            for offsets, low, high, last in (([0, 0], 0, 6, [5, 3]), ([6, 4], 6, 8, None), ([8, 6], 8, 9, [0, 0])):
                part = tokens[:, low:high]
                logits = self.forward(arena, 0, offsets, part, [self.bank.base] * 2, last)
                mx.eval(logits, arena.arrays())
                found.append(np.asarray(logits))
        tolerance = 1e-4 * (1.0 + max(float(np.abs(f).max()) for f in found))
        return all(bool(np.abs(a - b).max() <= tolerance) for a, b in zip(found[:3], found[3:], strict=True))


def _possible_heads(model: nn.Module) -> list[Head]:
    """What may turn the hidden states of `model.model` into logits."""
    body = getattr(model, "model", None)
    untied = getattr(model, "lm_head", None)
    tied = getattr(getattr(body, "embed_tokens", None), "as_linear", None)
    return [head for head in (untied, tied) if body is not None and callable(head)]
