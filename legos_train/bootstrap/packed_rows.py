"""A forward pass over rows laid end to end: no padding, and one product for all rows of a batch.

Rows that start alike share the tokens they start with. Attention runs row by row, in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
from mlx_lm.models import qwen3
from numpy.typing import NDArray

from inference.forward import blocks
from legos_train.bootstrap.training_rows import RowGroup


class PackedRows(NamedTuple):
    """N tokens of R rows, end to end. The tokens that some rows share are a row by themselves.

    Attributes:
        tokens, positions: (N,), the positions counted in the whole row.
        spans: for each row the slice of its prefix, which may be empty, and that of its own tokens.
        sites: (K,) the token of each site, sorted by row.
        order: (K,) which site of the batch each of these is.
        chosen: for each row the slice of its sites.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    spans: list[tuple[slice, slice]]
    sites: NDArray[np.int32]
    order: NDArray[np.int64]
    chosen: list[slice]


def packed(parts: Sequence[RowGroup]) -> PackedRows:
    """The rows of all parts, up to their last sites."""
    tokens: list[NDArray[np.int32]] = []
    positions: list[NDArray[np.int32]] = []
    spans: list[tuple[slice, slice]] = []
    sites: list[NDArray[np.integer[Any]]] = []
    row_of: list[NDArray[np.int64]] = []

    def add(ids: NDArray[np.int32], prefix: slice) -> slice:
        begin = spans[-1][1].stop if spans else 0
        own = slice(begin, begin + len(ids))
        tokens.append(ids)
        positions.append(np.arange(len(ids), dtype=np.int32) + (prefix.stop - prefix.start))
        spans.append((prefix, own))
        return own

    for part in parts:
        prefix = add(part.tokens[0][: part.prefix], slice(0, 0)) if part.prefix else slice(0, 0)
        row_of.append(len(spans) + part.rows.astype(np.int64))
        ends = np.full(len(part.tokens), part.prefix)
        np.maximum.at(ends, part.rows, part.cols + 1)
        begins = [add(part.tokens[i][part.prefix : end], prefix).start for i, end in enumerate(ends)]
        sites.append(np.array(begins)[part.rows] + part.cols - part.prefix)
    rows = np.concatenate(row_of)
    order = np.argsort(rows, kind="stable")
    edges = np.searchsorted(rows[order], np.arange(len(spans) + 1))
    chosen = [slice(begin, end) for begin, end in pairwise(edges.tolist())]
    at = np.concatenate(sites)[order].astype(np.int32)
    return PackedRows(np.concatenate(tokens), np.concatenate(positions), spans, at, order, chosen)


def hidden_states(model: qwen3.Model, parts: Sequence[RowGroup]) -> mx.array:
    """(K, H), at the sites of all parts in order, after the final norm."""
    rows = packed(parts)
    positions, at = rows.positions, mx.array(rows.sites)
    own = [span for _, span in rows.spans]
    x = model.model.embed_tokens(mx.array(rows.tokens))[:, None]  # (N, 1, H): each token is a row of its own
    for block in model.model.layers:
        normed = block.input_layernorm(x)
        keys, values = blocks.keys_and_values(block, normed, mx.array(rows.positions))
        if block is model.model.layers[-1]:
            x, normed, positions, own = x[at], normed[at], positions[rows.sites], rows.chosen
        queries = blocks.queries(block, normed, mx.array(positions))
        seeing = list(zip(own, rows.spans, strict=True))
        x = blocks.finish(block, x, blocks.attend_in_rows(block, queries, keys, values, seeing, positions + 1))
    return cast(mx.array, model.model.norm(x[:, 0])[mx.array(np.argsort(rows.order))])
