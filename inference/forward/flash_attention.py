"""Attention in numpy with a gradient, for a CPU: block by block, so that no array of all scores exists.

As in FlashAttention (Dao et al. 2022, arXiv 2205.14135; 2023, arXiv 2307.08691), the scores of a block of queries stay
in the processor's cache, and the gradient computes them again from the logarithm of their sum. Keys that no query of a
block sees are left out. Like the functions of fastmath.py it makes MLX evaluate its inputs while the graph is built.
There is no second derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np

from inference.forward import fastblas
from inference.forward.row_parts import LARGE, pool

_ROWS = 256
"""Rows of one matrix product: the queries of a block, of all heads that share keys."""
Array = np.ndarray[Any, Any]


class _Piece(NamedTuple):
    """Queries that see the same keys, of all heads that share them, as indices of arrays whose first axes they take.

    Attributes:
        queries: (heads, L, D) of the queries, and of the result.
        keys: one or more parts (T, D) of keys and values, in order.
        seen: (L,): each query sees as many of the first keys, at least one.
    """

    queries: tuple[Any, ...]
    keys: Sequence[tuple[Any, ...]]
    seen: Array


def attention(queries: mx.array, keys: mx.array, values: mx.array, seen: Array) -> mx.array:
    """Grouped-query attention, float32 or float64.

    Args:
        queries: (n, heads, L, D), scaled.
        keys: (n, kv heads, T, D).
        values: (n, kv heads, T, E).
        seen: integers, (n, L) or (1, L): each query sees as many of the first keys, at least one.

    Returns:
        (n, heads, L, E).
    """
    heads = queries.shape[1] // keys.shape[1]
    pieces = [
        _Piece((row, slice(group * heads, (group + 1) * heads)), [(row, group)], seen[row if len(seen) > 1 else 0])
        for row in range(keys.shape[0])
        for group in range(keys.shape[1])
    ]
    return _in_pieces(queries, keys, values, pieces, apart=True)


def of_rows(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    rows: Sequence[tuple[slice, Sequence[slice]]],
    seen: Array,
) -> mx.array:
    """The same for rows that lie end to end.

    Args:
        queries: (heads, m, D), scaled.
        keys: (kv heads, n, D).
        values: (kv heads, n, E).
        rows: some of the m queries, and the parts of the n keys that they see. Each query belongs to one row.
        seen: integers, (m,): each query sees as many of the first of these keys, at least one.

    Returns:
        (heads, m, E).
    """
    heads = queries.shape[0] // keys.shape[0]
    pieces = [
        _Piece((slice(group * heads, (group + 1) * heads), own), [(group, part) for part in parts], seen[own])
        for own, parts in rows
        if own.stop > own.start
        for group in range(keys.shape[0])
    ]
    return _in_pieces(queries, keys, values, pieces, apart=False)


def _in_pieces(queries: mx.array, keys: mx.array, values: mx.array, pieces: Sequence[_Piece], apart: bool) -> mx.array:
    """`apart`: no two pieces have a key in common, so they may run at the same time."""
    long = apart and queries.size * keys.shape[-2] >= LARGE * queries.shape[-1]
    threads = fastblas.threads() if long else 1

    @mx.custom_function
    def attend(q: mx.array, k: mx.array, v: mx.array) -> Any:
        return _forward(q, k, v, pieces, threads)

    @attend.vjp
    def gradient(primals: Any, cotangents: Any, outs: Any) -> Any:
        return _gradient((*primals, *outs, cotangents[0]), pieces, threads)

    return cast(tuple[mx.array, mx.array], attend(queries, keys, values))[0]


def _forward(
    q: mx.array, k: mx.array, v: mx.array, pieces: Sequence[_Piece], threads: int
) -> tuple[mx.array, mx.array]:
    """The result, and the logarithm of the sum of exponentials of each query and head."""
    mx.eval(q, k, v)
    queries, all_keys, all_values = map(np.asarray, (q, k, v))
    out, log_sums = mx.zeros((*q.shape[:-1], v.shape[-1]), q.dtype), mx.zeros(q.shape[:-1], q.dtype)
    mixed, totals = np.asarray(out), np.asarray(log_sums)

    def work(piece: _Piece) -> None:
        keys, values = _together(all_keys, piece), _together(all_values, piece)
        own_mixed, own_totals = mixed[piece.queries], totals[piece.queries]
        for at, span, _, scores in _scores(queries[piece.queries], keys, piece.seen):
            top = scores.max(axis=1, keepdims=True)
            np.subtract(scores, top, out=scores)
            np.exp(scores, out=scores)
            total = scores.sum(axis=1, keepdims=True)
            part = scores @ values[:span]
            part /= total
            own_mixed[:, at] = part.reshape(own_mixed[:, at].shape)
            own_totals[:, at] = (top + np.log(total)).reshape(own_totals[:, at].shape)

    _each(work, pieces, threads)
    return out, log_sums


def _gradient(arrays: tuple[mx.array, ...], pieces: Sequence[_Piece], threads: int) -> list[mx.array]:
    """Of the inputs, from these, the results of `_forward` and the gradient of the first."""
    mx.eval(arrays)
    queries, all_keys, all_values, mixed, totals, slopes = map(np.asarray, arrays)
    results = [mx.zeros(array.shape, array.dtype) for array in arrays[:3]]
    d_queries, d_all_keys, d_all_values = map(np.asarray, results)
    products = np.einsum("...i,...i->...", mixed, slopes)

    def work(piece: _Piece) -> None:
        keys, values = _together(all_keys, piece), _together(all_values, piece)
        d_keys, d_values = np.zeros_like(keys), np.zeros_like(values)
        own_totals, own_products, own_slopes = (array[piece.queries] for array in (totals, products, slopes))
        d_own = d_queries[piece.queries]
        for at, span, rows, shares in _scores(queries[piece.queries], keys, piece.seen):
            np.subtract(shares, own_totals[:, at].reshape(-1, 1), out=shares)
            np.exp(shares, out=shares)
            slope = own_slopes[:, at].reshape(len(rows), -1)
            d_values[:span] += shares.T @ slope
            d_scores = slope @ values[:span].T
            d_scores -= own_products[:, at].reshape(-1, 1)
            d_scores *= shares
            d_own[:, at] = (d_scores @ keys[:span]).reshape(d_own[:, at].shape)
            d_keys[:span] += d_scores.T @ rows
        for whole, own in ((d_all_keys, d_keys), (d_all_values, d_values)):
            begin = 0
            for part in piece.keys:
                size = len(whole[part])
                whole[part] += own[begin : begin + size]
                begin += size

    _each(work, pieces, threads)
    return results


def _together(array: Array, piece: _Piece) -> Array:
    """The piece's keys, or values, (T, D)."""
    return array[piece.keys[0]] if len(piece.keys) == 1 else np.concatenate([array[part] for part in piece.keys])


def _scores(queries: Array, keys: Array, seen: Array) -> Iterator[tuple[slice, int, Array, Array]]:
    """By block: which queries; how many keys they see at most; these queries as rows (R, D); their scores (R, keys)."""
    heads, size, width = queries.shape
    step = max(8, _ROWS // heads)
    for begin in range(0, size, step):
        at = slice(begin, min(begin + step, size))
        counts = seen[at]
        span, least = int(counts.max()), int(counts.min())
        rows = queries[:, at].reshape(-1, width)
        scores = rows @ keys[:span].T
        if least < span:
            beyond = np.arange(least, span) >= counts[:, None]
            np.copyto(scores.reshape(heads, -1, span)[:, :, least:], queries.dtype.type(-np.inf), where=beyond)
        yield at, span, rows, scores


def _each(work: Callable[[_Piece], None], pieces: Sequence[_Piece], threads: int) -> None:
    """Calls `work` for each piece, on this many threads."""

    def some(first: int) -> None:
        with np.errstate(all="ignore"):  # non-finite values are left to the caller
            for piece in pieces[first::threads]:
                work(piece)

    waiting = [pool(threads - 1).submit(some, first) for first in range(1, threads)]
    some(0)
    for future in waiting:
        future.result()
