"""Feed rows to the model: padded batches over the arena, the head on last positions only, shared beginnings once.

How the model is run is chosen here, by `choose_forward`; each is compared with the slower one after it before it is
relied on:

* in numpy (host_forward.py): on a CPU, float32 weights, blocks built like Llama's and Qwen's, ordinary rotary
  embeddings: qwen2, qwen3, llama, mistral;
* in MLX over the slot arena (mlx_forward.py): every model whose layers all use mlx-lm's plain `KVCache`, in any type,
  quantised or not, experts included. On a CPU, blocks built like Llama's get decoder.py's cheaper pass while they
  compute in float32 (quantised with float32 scales too); bfloat16 and float16 get the model's own call;
* row by row (solo_forward.py), with mlx-lm's own caches: sliding windows, recurrences, and models that turn out not to
  take a batch of rows that differ in length. Slower, no shared beginnings, the same numbers.

A model that none of them can run is refused with UnsupportedModel. docs/engine.md has a table by architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from inference.adapters import AdapterBank, Policy
from inference.engine.prefix_cache import MIN_PREFIX, PrefixCache, clusters
from inference.forward import Forward, Logits, MlxForward, SoloForward, alike, host_forward, rounding, trial
from inference.types import UnsupportedModel

__all__ = ["Fed", "Logits", "Runner", "choose_forward"]

_MISFITS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a model's code raises when it is not made for what it is given."""


class Fed(Protocol):
    """What the runner needs to know of a row."""

    prompt: tuple[int, ...]
    policy: Any
    slot: int
    home: int
    pos: int
    pending: Sequence[int]
    cached: int


def choose_forward(model: nn.Module, bank: AdapterBank) -> Forward:
    """The cheapest forward pass that gives the model's own numbers. UnsupportedModel when there is none."""
    try:
        solo = SoloForward(model, bank)
    except _MISFITS as error:
        raise UnsupportedModel(
            f"the engine cannot run {type(model).__module__}: {type(error).__name__}: {error}"
        ) from error
    if any(type(cache) is not KVCache for cache in make_prompt_cache(model)):
        return solo
    try:
        own = MlxForward(model, bank)
        expected = trial(own, bank.base)
    except _MISFITS:
        return solo  # the model's code does not take rows of different lengths
    if not alike(expected, trial(solo, bank.base), rounding(model)):
        return solo
    if own.own_decoder and host_forward.fits(model):
        host = host_forward.HostForward(model, own.vocab)
        if alike(trial(host, bank.base), expected) and _same_head(host, own, bank.base):
            return host
    return own


def _same_head(host: host_forward.HostForward, own: MlxForward, base: Policy) -> bool:
    """Also for hidden states so large that a cap on the logits would show."""
    if own.head is None:
        return False
    hidden = np.random.default_rng(0).normal(size=(4, host.hidden)).astype(np.float32)
    hidden[2:] *= 1000.0
    expected = np.asarray(own.head(mx.array(hidden[:, None])))[:, 0]
    return all(alike([host.logits(hidden[i], base)], [expected[i]]) for i in (slice(0, 2), slice(2, 4)))


class Runner:
    """A model, its adapters and its cache of shared beginnings; stateless as to who is being served."""

    def __init__(self, model: nn.Module, bank: AdapterBank, *, prefill_tokens: int, prefix_cache_bytes: int) -> None:
        self.forward = choose_forward(model, bank)
        self.vocab, self.bytes_per_entry = self.forward.vocab, self.forward.bytes_per_entry
        self.prefill_tokens = prefill_tokens
        self.prefixes = PrefixCache(prefix_cache_bytes)
        self._recent: dict[str, tuple[int, ...]] = {}

    def arena(self) -> Any:
        """An empty arena for this model."""
        return self.forward.arena()

    def drop_caches(self) -> None:
        """Forget shared beginnings."""
        self.prefixes.clear()
        self._recent.clear()

    def feed(self, arena: Any, rows: Sequence[Fed]) -> Iterator[tuple[Sequence[Fed], Logits]]:
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
            yield batch, logits

    def warm(self, arena: Any, rows: Sequence[Fed]) -> None:
        """Give new rows the keys and values of beginnings they share with each other, or with earlier prompts.

        Sets `pos`, `pending` and `cached` of each row. A beginning shared by two prompts is computed once and kept;
        with a cache of 0 bytes every prompt is computed in full.
        """
        if not self.forward.batches or not self.prefixes.max_bytes:
            return
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

    def park(self, arena: Any, row: Fed, tokens: Sequence[int]) -> None:
        """Keep the keys and values of a row that has just ended; `tokens` are those whose keys and values are there."""
        if self.forward.batches and self.prefixes.max_bytes and len(tokens) >= MIN_PREFIX:
            self.prefixes.put(row.policy.digest, tokens, arena.snapshot(row.home, len(tokens)))

    def _warm_group(self, arena: Any, digest: str, group: list[Fed], shared: int) -> None:
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

    def _feed_silently(self, arena: Any, row: Fed, start: int, stop: int) -> None:
        """Store keys and values of some pending tokens; no logits."""
        tokens = np.asarray([row.pending[start:stop]], dtype=np.int32)
        self.forward(arena, row.slot, [row.pos + start], tokens, [row.policy], [stop - start - 1], head=False)

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
