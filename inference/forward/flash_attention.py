"""Attention in numpy with a gradient, for a CPU: block by block, so that no array of all scores exists.

As in FlashAttention (Dao et al. 2022, arXiv 2205.14135; 2023, arXiv 2307.08691), the scores of a block of queries stay
in the processor's cache, and the gradient computes them again from the logarithm of their sum. Keys that no query of a
block sees are left out. Like the functions of fastmath.py it makes MLX evaluate its inputs while the graph is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np

from inference.forward import fastblas
from inference.forward.row_parts import LARGE, pool

_ROWS = 256
"""Rows of one matrix product: the queries of a block, of all heads that share keys."""
Array = np.ndarray[Any, Any]


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

    @mx.custom_function
    def attend(q: mx.array, k: mx.array, v: mx.array) -> Any:
        return _forward(q, k, v, seen)

    @attend.vjp
    def gradient(primals: Any, cotangents: Any, outs: Any) -> Any:
        return _gradient((*primals, *outs, cotangents[0]), seen)

    return cast(tuple[mx.array, mx.array], attend(queries, keys, values))[0]


class _Block(NamedTuple):
    """Some queries of a row, of all heads that share keys: `at` selects them; they see at most the first `span` keys.

    hidden: (queries, keys), 0 or -inf, for the last of these keys; None: all is seen.
    """

    at: tuple[int, slice, slice]
    kv: tuple[int, int, slice]
    hidden: Array | None

    def scores(self, q: Array, k: Array) -> tuple[Array, Array]:
        """The queries as rows (R, D), and their products with the keys (R, span)."""
        part = q[self.at]
        rows = part.reshape(-1, part.shape[-1])
        scores = rows @ k[self.kv].T
        if self.hidden is not None:
            size, width = self.hidden.shape
            scores.reshape(-1, size, scores.shape[-1])[:, :, -width:] += self.hidden
        return rows, scores


def _blocks(row: int, group: int, q: Array, k: Array, seen: Array) -> Iterator[_Block]:
    """The blocks of queries of one row that share one head of keys."""
    heads, size = q.shape[1] // k.shape[1], q.shape[2]
    own = seen[row if len(seen) > 1 else 0]
    step = max(8, _ROWS // heads)
    for begin in range(0, size, step):
        end = min(begin + step, size)
        counts = own[begin:end]
        span, least = int(counts.max()), int(counts.min())
        hidden = None
        if least < span:
            beyond = np.arange(least, span) >= counts[:, None]
            hidden = np.where(beyond, q.dtype.type(-np.inf), q.dtype.type(0.0))
        at = (row, slice(group * heads, (group + 1) * heads), slice(begin, end))
        yield _Block(at, (row, group, slice(span)), hidden)


def _forward(q: mx.array, k: mx.array, v: mx.array, seen: Array) -> tuple[mx.array, mx.array]:
    """The result, and the logarithm of the sum of exponentials (n, heads, L) of each query."""
    mx.eval(q, k, v)
    queries, keys, values = map(np.asarray, (q, k, v))
    out = mx.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    log_sums = mx.zeros(q.shape[:3], q.dtype)
    mixed, totals = np.asarray(out), np.asarray(log_sums)

    def work(row: int, group: int) -> None:
        for block in _blocks(row, group, queries, keys, seen):
            _, scores = block.scores(queries, keys)
            top = scores.max(axis=1, keepdims=True)
            scores -= top
            np.exp(scores, out=scores)
            total = scores.sum(axis=1, keepdims=True)
            part = scores @ values[block.kv]
            part /= total
            mixed[block.at] = part.reshape(mixed[block.at].shape)
            totals[block.at] = (top + np.log(total)).reshape(totals[block.at].shape)

    _each(work, queries, keys)
    return out, log_sums


def _gradient(arrays: tuple[mx.array, ...], seen: Array) -> list[mx.array]:
    """Of the inputs, from these, the results of `_forward` and the gradient of the first."""
    mx.eval(arrays)
    queries, keys, values, mixed, totals, slopes = map(np.asarray, arrays)
    results = [mx.zeros(array.shape, array.dtype) for array in arrays[:3]]
    d_queries, d_keys, d_values = map(np.asarray, results)
    products = np.einsum("...i,...i->...", mixed, slopes)

    def work(row: int, group: int) -> None:
        for block in _blocks(row, group, queries, keys, seen):
            rows, shares = block.scores(queries, keys)
            shares -= totals[block.at].reshape(-1, 1)
            np.exp(shares, out=shares)
            slope = slopes[block.at].reshape(len(rows), -1)
            d_values[block.kv] += shares.T @ slope
            d_scores = slope @ values[block.kv].T
            d_scores -= products[block.at].reshape(-1, 1)
            d_scores *= shares
            d_queries[block.at] = (d_scores @ keys[block.kv]).reshape(d_queries[block.at].shape)
            d_keys[block.kv] += d_scores.T @ rows

    _each(work, queries, keys)
    return results


def _each(work: Any, queries: Array, keys: Array) -> None:
    """Calls `work` for each row and head of keys, on as many threads as matrix products if they are long."""
    places = [(row, group) for row in range(len(keys)) for group in range(keys.shape[1])]
    threads = fastblas.threads() if queries.shape[1] * queries.shape[2] * keys.shape[2] * len(keys) >= LARGE else 1

    def some(first: int) -> None:
        with np.errstate(all="ignore"):  # non-finite values are left to the caller
            for place in places[first::threads]:
                work(*place)

    waiting = [pool(threads - 1).submit(some, first) for first in range(1, threads)]
    some(0)
    for future in waiting:
        future.result()
