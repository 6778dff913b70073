"""A forward pass over rows laid end to end, for a CPU: nothing is padded, and what rows begin with alike runs once.

Rows form a tree: tokens that some of them share are one piece, whatever comes before and after it. Each product runs
over all tokens, attention piece by piece in numpy. For the decoders of `inference.forward.blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference.forward import blocks

SHORTEST = 8
"""Fewer tokens than this are computed again by each row rather than shared: a piece by itself costs more."""
TokenIds = NDArray[np.integer[Any]]


class PackedRows(NamedTuple):
    """N tokens of some rows, piece by piece, and K sites among them.

    Attributes:
        tokens, positions: (N,), the positions counted in the row.
        pieces: for each piece its tokens and those before it in its rows, as slices from the first to the piece itself.
        sites: (M,) the tokens of the sites, ascending, each once.
        site: (K,) which of these each site is.
    """

    tokens: TokenIds
    positions: TokenIds
    pieces: list[tuple[slice, ...]]
    sites: TokenIds
    site: TokenIds

    @property
    def own(self) -> list[slice]:
        """The tokens of each piece."""
        return [chain[-1] for chain in self.pieces]

    @property
    def own_sites(self) -> list[slice]:
        """The sites of each piece, of `sites`."""
        starts = [own.start for own in self.own]
        edges = [*np.searchsorted(self.sites, starts).tolist(), len(self.sites)]
        return [slice(begin, end) for begin, end in pairwise(edges)]


def packed(rows: Sequence[TokenIds], site_rows: TokenIds, site_cols: TokenIds) -> PackedRows:
    """Lays out rows in any order, up to their last sites.

    Args:
        rows: token ids of each.
        site_rows: (K,) the row of each site.
        site_cols: (K,) its position in the row; K is at least 1.
    """
    ends = np.zeros(len(rows), np.int64)
    np.maximum.at(ends, site_rows, site_cols + 1)
    needed = [row[:end] for row, end in zip(rows, ends, strict=True)]
    lists = [row.tolist() for row in needed]
    order = sorted(filter(lists.__getitem__, range(len(rows))), key=lists.__getitem__)
    shared = [_alike(needed[a], needed[b]) for a, b in pairwise(order)]
    tokens: list[TokenIds] = []
    count = 0
    positions: list[TokenIds] = []
    pieces: list[tuple[slice, ...]] = []
    starts: list[list[tuple[int, int]]] = [[] for _ in rows]  # of each row: where its pieces begin in it, and in tokens

    todo: list[tuple[int, int, int, tuple[slice, ...]]] = [(0, len(order), 0, ())]
    while todo:  # rows first to end of the order agree up to `begin`, which lies in the pieces of `before`
        first, end, begin, before = todo.pop()
        longest = needed[order[first]]
        common = min(shared[first : end - 1], default=len(longest))
        if common - begin >= SHORTEST or end == first + 1:
            if common > begin:
                own = slice(count, count + common - begin)
                count = own.stop
                tokens.append(longest[begin:common])
                positions.append(np.arange(begin, common, dtype=np.int32))
                before = (*before, own)
                pieces.append(before)
                for row in order[first:end]:
                    starts[row].append((begin, own.start))
            begin = common
            if end == first + 1:
                continue
        splits = [i + 1 for i in range(first, end - 1) if shared[i] == common]
        edges = [first, *splits, end]
        todo += [(a, b, begin, before) for a, b in pairwise(edges)]
    at = np.empty(len(site_rows), np.int64)
    for site, (row, col) in enumerate(zip(site_rows.tolist(), site_cols.tolist(), strict=True)):
        begin, start = next(pair for pair in reversed(starts[row]) if pair[0] <= col)
        at[site] = start + col - begin
    sites, back = np.unique(at, return_inverse=True)
    return PackedRows(np.concatenate(tokens), np.concatenate(positions), pieces, sites, back)


def _alike(a: TokenIds, b: TokenIds) -> int:
    """The number of equal first tokens."""
    size = min(len(a), len(b))
    different = np.flatnonzero(a[:size] != b[:size])
    return int(different[0]) if len(different) else size


def packed_hidden(model: Any, rows: PackedRows) -> mx.array:
    """(K, H), at the sites, after the final norm."""
    positions, own = rows.positions, rows.own
    x = model.model.embed_tokens(mx.array(rows.tokens))[:, None]  # (N, 1, H): each token is a row of its own
    for block in model.model.layers:
        normed = block.input_layernorm(x)
        keys, values = blocks.keys_and_values(block, normed, mx.array(rows.positions))
        if block is model.model.layers[-1]:
            at = mx.array(rows.sites)
            x, normed, positions, own = x[at], normed[at], positions[rows.sites], rows.own_sites
        queries = blocks.queries(block, normed, mx.array(positions))
        seeing = list(zip(own, rows.pieces, strict=True))
        x = blocks.finish(block, x, blocks.attend_in_rows(block, queries, keys, values, seeing, positions + 1))
    return cast(mx.array, model.model.norm(x[:, 0])[mx.array(rows.site)])
