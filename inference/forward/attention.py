"""Grouped-query attention in MLX, for the engine's forward pass and the trainer's.

On a CPU, where MLX has no kernel for it, long rows run in blocks of queries, without the keys that no query of a block
sees: in numpy where fastmath.py uses it, else within the graph.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, cast

import mlx.core as mx
import numpy as np

from inference.forward import fastmath, flash_attention

Seen = np.ndarray[Any, np.dtype[Any]]

_QUERIES = 128
"""Queries of a block within the graph."""
_LONG = 1 << 15
"""Scores of a row and a head of keys from which numpy's blocks are faster than all rows at once."""


def attention(queries: mx.array, keys: mx.array, values: mx.array, scale: float, seen: Seen | None) -> mx.array:
    """(n, heads, L, D) over (n, kv heads, T, D) and (n, kv heads, T, E) -> (n, heads, L, E).

    Args:
        queries: not yet scaled.
        keys: likewise.
        values: likewise.
        scale: factor on all scores.
        seen: integers, (n, L) or (1, L): each query sees as many of the first keys, at least one. None: all of them.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        mask = None if seen is None else _mask(seen, keys.shape[2])
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    queries = queries * scale
    keys, values = keys.astype(queries.dtype), values.astype(queries.dtype)  # some models widen queries only
    size, span = queries.shape[2], keys.shape[2]
    if seen is None:
        return _at_once(queries, keys, values, None)
    if fastmath.in_numpy(queries) and queries.shape[1] // keys.shape[1] * size * span >= _LONG:
        return flash_attention.attention(queries, keys, values, seen)
    count = -(-size // _QUERIES)
    edges = [size * i // count for i in range(count + 1)]
    parts = [_block(queries, keys, values, seen, begin, end) for begin, end in pairwise(edges)]
    return mx.concatenate(parts, axis=2) if count > 1 else parts[0]


def causal(queries: int, keys: int) -> Seen:
    """(1, queries): what each of the last `queries` of `keys` positions sees, itself and what came before."""
    return np.arange(keys - queries + 1, keys + 1)[None]


def _mask(seen: Seen, span: int) -> mx.array | Literal["causal"]:
    """For `mx.fast.scaled_dot_product_attention`, whose kernels compute no scores that "causal" hides."""
    if np.array_equal(seen, causal(seen.shape[1], span)):
        return "causal"
    return mx.array(np.arange(span) < seen[:, None, :, None])


def _block(queries: mx.array, keys: mx.array, values: mx.array, seen: Seen, begin: int, end: int) -> mx.array:
    counts = seen[:, begin:end]
    span = int(counts.max())
    visible = mx.array(np.arange(span) < counts[..., None]) if int(counts.min()) < span else None
    return _at_once(queries[:, :, begin:end], keys[:, :, :span], values[:, :, :span], visible)


def _at_once(q: mx.array, keys: mx.array, values: mx.array, visible: mx.array | None) -> mx.array:
    """`visible`: boolean, (n or 1, L, T)."""
    rows, heads, size, _ = q.shape
    groups = keys.shape[1]
    # Heads that share keys become rows of one matrix product instead of many small ones.
    q = q.reshape(rows, groups, heads // groups * size, -1)
    scores = (q @ keys.swapaxes(-1, -2)).reshape(rows, groups, heads // groups, size, -1)
    weights = fastmath.softmax(scores, visible if visible is None else visible[:, None, None])
    return cast(mx.array, (weights.reshape(*q.shape[:3], -1) @ values).reshape(rows, heads, size, -1))
