"""The arrays of a batch, and how to split it into minibatches and parts that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legos_train.loss.batch.splitting import row_chunks

ROWS_APART = 32  # distinct rows per minibatch above which rows are drawn, not turns

REASONS = ("too_long", "stale", "empty", "cut", "zero")
"""Why turns of trainable agents are left out of a batch."""

Ints = NDArray[np.int32]
Floats32 = NDArray[np.float32]


@dataclass(slots=True)
class Counters:
    """The contents of a batch, for logs. `dropped` counts turns of trainable agents left out, by reason.

    `zero_advantages`: turns with an advantage of 0 in it; those left out for that reason are in `dropped`.
    `action_tokens` and `turns` count forced tokens too, which are not in the arrays (`forced_tokens`).
    """

    turns: int = 0
    rows: int = 0
    distinct_rows: int = 0
    action_tokens: int = 0
    zero_advantages: int = 0
    forced_tokens: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    @property
    def zero_advantage_share(self) -> float | None:
        """Share of the turns whose advantage is exactly 0, whether left out or not; None for an empty batch."""
        left_out = self.dropped["zero"]
        return (self.zero_advantages + left_out) / (self.turns + left_out) if self.turns else None


@dataclass(slots=True)
class Batch:
    """U distinct rows of at most T tokens, K sites in them, M sampled tokens.

    tokens (U, T) right padded with 0; lengths (U,); `prefix`: all rows share their first `prefix` tokens and no site
    lies among them. rows, cols (K,): the place of a site's hidden state; `keys` (K): a digest of the tokens up to and
    with that column, equal for equal contexts in any batch. Per sampled token: position (M,) its site; row (M,) the row
    its turn is in (the site may be in another row with the same prefix); target (M,) its token id; old_logprobs (M,);
    advantages (M,); sequence (M,) the turn it belongs to; sequence_length (M,) how many tokens that turn has, forced
    ones that were left out included; trajectory (M,); version (M,) the policy version that sampled it (-1: unknown);
    legal (M,) which of `legal_sets` could have been sampled there (-1: any token); weight (M,) how many turns its turn
    counts for (1, unless the batch has every action of a decision point, weighted by its probability).
    `total_tokens`, `total_sequences` are the divisors of losses: those of the whole batch in a part.
    `start_logprobs` (M,): those of the policy at the start of the optimiser step, see `with_start`.
    """

    tokens: Ints
    lengths: Ints
    prefix: int
    rows: Ints
    cols: Ints
    keys: list[bytes]
    position: Ints
    row: Ints
    target: Ints
    old_logprobs: Floats32
    advantages: Floats32
    sequence: Ints
    sequence_length: Ints
    trajectory: Ints
    version: Ints
    legal: Ints
    weight: Floats32
    total_tokens: float
    total_sequences: float
    counters: Counters
    legal_sets: tuple[tuple[int, ...], ...] = ()
    start_logprobs: Floats32 | None = None

    def __len__(self) -> int:
        """M, the number of sampled tokens."""
        return len(self.target)

    def context(self, site: int) -> list[int]:
        """The context of a site: the tokens before its sampled tokens."""
        row: list[int] = self.tokens[self.rows[site], : self.cols[site] + 1].tolist()
        return row

    @property
    def distinct_rows(self) -> int:
        return len(self.lengths)

    @property
    def site_weights(self) -> NDArray[np.float64]:
        """The total weight of each site's tokens, shape (K,)."""
        return np.bincount(self.position, self.weight, len(self.rows)).astype(np.float64)

    def with_start(self, logprobs: NDArray) -> Batch:
        """The batch with `start_logprobs` (M,); `policy.prepare` computes them. Raises ValueError for another shape."""
        if logprobs.shape != self.target.shape:
            raise ValueError(f"start log-probabilities must have the shape {self.target.shape}, got {logprobs.shape}")
        return replace(self, start_logprobs=np.asarray(logprobs, dtype=np.float32))

    def token_weights(self, aggregation: str, constant: float = 1.0) -> Floats32:
        """Weights w (M,) such that the loss of the batch is `sum(w * loss per token)`.

        `"token"`: mean over tokens. `"sequence"`: mean over turns of the mean over the turn's tokens. `"constant"`: sum
        over the turn's tokens divided by `constant`, mean over turns (Dr. GRPO, arXiv 2503.20783). Parts
        carry the weights they have in the whole batch, and a token weighs the same whether neighbouring forced tokens
        were left out or not: that saves work and does not change the objective. Raises ValueError for any other name.
        """
        if aggregation == "token":
            return self.weight * np.float32(1.0 / (self.total_tokens or 1))
        if aggregation == "sequence":
            return self.weight * (1.0 / (self.sequence_length * float(self.total_sequences or 1))).astype(np.float32)
        if aggregation == "constant":
            if not constant > 0:
                raise ValueError(f"loss.constant must be positive, got {constant!r}")
            return self.weight * np.float32(1.0 / (constant * (self.total_sequences or 1)))
        raise ValueError(f"aggregation must be 'token', 'sequence' or 'constant', got {aggregation!r}")

    def select(self, keep: NDArray[np.bool_]) -> Batch:
        """The batch of the sampled tokens where `keep` (M,) is true, with only the rows they need; same totals."""
        used, local = np.unique(self.row[keep], return_inverse=True)
        cols = self.cols[self.position[keep]]
        per_token = {name: getattr(self, name)[keep] for name in _PER_TOKEN}
        contexts = [tuple(self.tokens[row, : self.lengths[row]].tolist()) for row in used]
        part = arrange(contexts, local.astype(np.int32), cols, per_token, self.counters)
        start = None if self.start_logprobs is None else self.start_logprobs[keep]
        return replace(
            part,
            total_tokens=self.total_tokens,
            total_sequences=self.total_sequences,
            legal_sets=self.legal_sets,
            start_logprobs=start,
        )

    def parts(self, max_tokens: int | None = None) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Parts that together hold every sampled token once; their gradients add up to that of the whole batch.

        Each comes with the positions of its sampled tokens among the M of this batch.

        Rows are first grouped by prefix, if computing a group's shared prefix once saves more than
        a part costs (a batch of several games has several rule texts), then by length, so that little is padding.
        `max_tokens` bounds the padded tokens of a part's rows after their shared prefix, which comes on top; a longer
        row is its own part. None: no bound. Raises ValueError if `max_tokens` is less than 1.
        """
        chunks = row_chunks(self.tokens, self.lengths, self.rows, self.cols, max_tokens)
        if len(chunks) == 1:
            yield self, np.arange(len(self))
            return
        for chunk in chunks:
            keep = np.isin(self.row, chunk)
            yield self.select(keep), np.flatnonzero(keep)

    def minibatches(self, count: int, seed: int) -> Iterator[Batch]:
        """`count` batches of whole turns drawn at random without replacement, for several optimiser steps on one batch.

        Each has an equal share of the totals, whatever it holds, so that the mean of their losses is the loss of the
        batch: with totals of its own a minibatch of few or light turns would give these more weight. With many distinct
        rows, rows are drawn, so that shared prefixes are computed once per epoch. Returns fewer if there are fewer
        turns than `count`.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count!r}")
        turns = np.unique(self.sequence)
        if count == 1 or len(turns) < 2:
            yield self
            return
        rng = np.random.default_rng(seed)
        if self.distinct_rows >= ROWS_APART * count:
            share = np.empty(self.distinct_rows, dtype=np.int64)
            for number, rows in enumerate(np.array_split(rng.permutation(self.distinct_rows), count)):
                share[rows] = number
            of_turn = share[self.row[np.unique(self.sequence, return_index=True)[1]]]
            parts = [turns[of_turn == number] for number in range(count)]
        else:
            parts = np.array_split(rng.permutation(turns), min(count, len(turns)))
        for part in parts:
            yield replace(
                self.select(np.isin(self.sequence, part)),
                total_tokens=self.total_tokens / len(parts),
                total_sequences=self.total_sequences / len(parts),
            )


_PER_TOKEN = (
    "target", "old_logprobs", "advantages", "sequence", "sequence_length", "trajectory", "version", "legal", "weight",
)  # fmt: skip


def arrange(
    contexts: Sequence[tuple[int, ...]], rows: Ints, cols: Ints, per_token: Mapping[str, Any], counters: Counters
) -> Batch:
    """Builds a batch from row tokens and, per sampled token, the row and column of the hidden state predicting it.

    Rows are cut after the last column needed, sorted, and merged into a longer row that starts with them, so the result
    does not depend on the order of the episodes except for the order of the sampled tokens.
    """
    needed = np.zeros(len(contexts), dtype=np.int64)
    np.maximum.at(needed, rows, cols + 1)
    cut = [context[:size] for context, size in zip(contexts, needed, strict=True)]
    kept: list[tuple[int, ...]] = []
    merged: dict[tuple[int, ...], int] = {}
    for row in sorted(set(cut), reverse=True):  # in this order a row comes right after the rows that start with it
        if not kept or kept[-1][: len(row)] != row:
            kept.append(row)
        merged[row] = len(kept) - 1
    lengths = np.array([len(row) for row in kept], dtype=np.int32)
    tokens = np.zeros((len(kept), int(lengths.max(initial=0))), dtype=np.int32)
    for index, row in enumerate(kept):
        tokens[index, : len(row)] = row
    new_rows = np.array([merged[row] for row in cut], dtype=np.int64)[rows] if cut else np.zeros(0, dtype=np.int64)
    places, inverse = np.unique(new_rows * max(tokens.shape[1], 1) + cols, return_inverse=True)
    site_of: dict[bytes, int] = {}
    site_rows, site_cols, remap = [], [], np.zeros(len(places), dtype=np.int32)
    last, read, digest = -1, 0, blake2b()
    for index, place in enumerate(places):
        row_, col = divmod(int(place), tokens.shape[1])
        if row_ != last:
            last, read, digest = row_, 0, blake2b(digest_size=16)
        digest.update(tokens[row_, read : col + 1].tobytes())
        read, key = col + 1, digest.digest()
        if key not in site_of:
            site_of[key] = len(site_of)
            site_rows.append(row_)
            site_cols.append(col)
        remap[index] = site_of[key]
    sequences = len(np.unique(per_token["sequence"]))
    return Batch(
        tokens=tokens,
        lengths=lengths,
        prefix=_common_prefix(tokens, min(site_cols, default=0)),
        rows=np.array(site_rows, dtype=np.int32),
        cols=np.array(site_cols, dtype=np.int32),
        keys=list(site_of),
        position=remap[inverse].astype(np.int32) if len(places) else np.zeros(0, dtype=np.int32),
        row=new_rows.astype(np.int32),
        total_tokens=len(per_token["target"]),
        total_sequences=sequences,
        counters=counters,
        **per_token,
    )


def _common_prefix(tokens: Ints, limit: int) -> int:
    """How many leading tokens all rows share, at most `limit` (the first column with a site: no row is shorter)."""
    differ = np.flatnonzero((tokens[:, :limit] != tokens[:1, :limit]).any(axis=0))
    return int(differ[0]) if len(differ) else limit
