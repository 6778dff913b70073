"""Feed rows to the model: padded batches over the KV cache, the head on last positions only, shared prefixes once.

`inference.forward.choose_forward` decides how the model is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from mlx import nn

from inference.adapters import AdapterBank
from inference.engine.even_stretches import PrefillRow, R, Run, even_stretches
from inference.engine.prefix_cache import MIN_PREFIX, PrefixCache, clusters
from inference.forward import Fed, choose_forward

DIGESTS = 64
"""The number of adapter versions whose last prompt is remembered."""


class FeedRow(PrefillRow, Protocol):
    """What prefix sharing needs in addition."""

    prompt: tuple[int, ...]
    home: int
    cached: int


class ModelRunner:
    """A model, its adapters and its cache of shared prefixes; holds no state about requests."""

    def __init__(self, model: nn.Module, bank: AdapterBank, *, prefill_tokens: int, prefix_cache_bytes: int) -> None:
        self.forward = choose_forward(model, bank)
        self.vocab = self.forward.vocab
        self.bytes_per_entry, self.bytes_per_row = self.forward.bytes_per_entry, self.forward.bytes_per_row
        self.prefill_tokens = prefill_tokens
        self.prefixes = PrefixCache(prefix_cache_bytes, whole=self.forward.stateful)
        self._recent: dict[str, tuple[int, ...]] = {}

    def new_kv(self) -> Any:
        """An empty KV cache for this model."""
        return self.forward.new_kv()

    def drop_caches(self) -> None:
        """Forgets shared beginnings."""
        self.prefixes.clear()
        self._recent.clear()

    def feed(self, kv: Any, rows: Sequence[R], run: Run | None = None) -> Iterator[tuple[Sequence[R], Any]]:
        """Feeds each row's pending tokens; yields batches of rows with the logits (n, V) after their last token.

        rows occupy consecutive slots in order. The caller advances `pos` and `pending`. `run` replaces `forward` for
        the forward passes. Rows with drafts, all of the same length, get logits (n, 1 + length, V).
        """
        run = run or self.forward
        if not self.forward.pads:
            yield from even_stretches(run, kv, rows, self.prefill_tokens)
            return
        for batch in self._batches(rows):
            if batch[0].draft:
                fed = np.array([[*row.pending, *row.draft] for row in batch], dtype=np.int32)
                offsets, adapters = [row.pos for row in batch], [row.adapter for row in batch]
                yield batch, run(kv, Fed(batch[0].slot, offsets, fed, adapters))
                continue
            width = max(len(row.pending) for row in batch)
            for start in range(0, max(width - self.prefill_tokens, 0), self.prefill_tokens):
                # Only a batch of one can be this wide: feed all but the last stretch without the head.
                _feed_silently(run, kv, batch[0], start, start + self.prefill_tokens)
            done = (width - 1) // self.prefill_tokens * self.prefill_tokens if len(batch) == 1 else 0
            tokens = np.zeros((len(batch), width - done), dtype=np.int32)
            for i, row in enumerate(batch):
                tokens[i, : len(row.pending) - done] = row.pending[done:]
            last = [len(row.pending) - done - 1 for row in batch]
            offsets, adapters = [row.pos + done for row in batch], [row.adapter for row in batch]
            yield batch, run(kv, Fed(batch[0].slot, offsets, tokens, adapters, last))

    def warm(self, kv: Any, rows: Sequence[FeedRow], run: Run | None = None) -> None:
        """Gives new rows the keys and values of prefixes shared with each other or with earlier prompts.

        Sets `pos`, `pending` and `cached` of each row. A prefix shared by two prompts is computed once and kept; with a
        cache of 0 bytes every prompt is computed in full.
        """
        if not self.forward.batches or not self.prefixes.max_bytes:
            return
        by_digest: dict[str, list[FeedRow]] = {}
        for row in rows:
            by_digest.setdefault(row.adapter.digest, []).append(row)
        for digest, members in by_digest.items():
            prompts = [row.prompt for row in members]
            recent = self._recent.get(digest)
            # The last prompt of the previous round counts as a neighbour: even one prompt a round finds its prefix.
            for indices, shared in clusters(prompts if recent is None else [*prompts, recent]):
                cluster = [members[i] for i in indices if i < len(members)]
                if cluster:
                    self._warm_cluster(kv, digest, cluster, shared if len(indices) > 1 else 0, run or self.forward)
            self._recent.pop(digest, None)
            self._recent[digest] = prompts[-1]
            if len(self._recent) > DIGESTS:  # of long-gone versions
                del self._recent[next(iter(self._recent))]

    def park(self, kv: Any, row: FeedRow, tokens: Sequence[int]) -> None:
        """Keeps the keys and values of a row that has just ended; `tokens` are the tokens they belong to."""
        if self.forward.batches and self.prefixes.max_bytes and len(tokens) >= MIN_PREFIX:
            self.prefixes.put(row.adapter.digest, tokens, kv.snapshot(row.home, len(tokens)))

    def _warm_cluster(self, kv: Any, digest: str, cluster: list[FeedRow], shared: int, run: Run) -> None:
        shared = min(shared, *(len(row.prompt) - 1 for row in cluster))
        hits = [self.prefixes.longest(digest, row.prompt) for row in cluster]
        lead: FeedRow | None = None
        if shared >= MIN_PREFIX and min(length for _, length in hits) < shared:
            shortest = min(range(len(cluster)), key=lambda i: hits[i][1])
            lead = cluster[shortest]
            entry, length = hits[shortest]
            if entry is not None:
                kv.restore(entry.snapshot, [lead.slot], length)
            lead.pos = lead.cached = length
            for start in range(length, shared, self.prefill_tokens):
                lead.pending = lead.prompt[start : min(start + self.prefill_tokens, shared)]
                _feed_silently(run, kv, lead, 0, len(lead.pending))
                lead.pos += len(lead.pending)
            lead.pending = lead.prompt[shared:]
            entry = self.prefixes.put(digest, lead.prompt[:shared], kv.snapshot(lead.slot, shared))
            hits = [(entry, shared) if length < shared else (hit, length) for hit, length in hits]
        places: dict[tuple[int, int], list[FeedRow]] = {}
        entries = {id(entry): entry for entry, _ in hits if entry is not None}
        for row, (entry, length) in zip(cluster, hits):
            if entry is not None and row is not lead:
                row.pos = row.cached = length
                row.pending = row.prompt[length:]
                places.setdefault((id(entry), length), []).append(row)
        for (key, length), members in places.items():
            kv.restore(entries[key].snapshot, [row.slot for row in members], length)

    def _batches(self, rows: Sequence[R]) -> Iterator[Sequence[R]]:
        """Consecutive rows to feed together: single tokens separate from prompts, at most half of a batch padding."""
        start, total, width = 0, 0, 0
        for i, row in enumerate(rows):
            n = len(row.pending) + len(row.draft)
            wider = max(width, n)
            count = i - start + 1
            fits = wider == 1 or (min(width, n) > 1 and wider * count <= self.prefill_tokens)
            fits = fits and bool(row.draft) == bool(rows[start].draft)
            if i > start and not (fits and (total + n) * 2 >= wider * count):
                yield rows[start:i]
                start, total, wider = i, 0, n
            total, width = total + n, wider
        if start < len(rows):
            yield rows[start:]


def _feed_silently(run: Run, kv: Any, row: PrefillRow, start: int, stop: int) -> None:
    """Stores keys and values of some pending tokens, without logits."""
    tokens = np.asarray([row.pending[start:stop]], dtype=np.int32)
    run(kv, Fed(row.slot, [row.pos + start], tokens, [row.adapter], [stop - start - 1], head=False))
