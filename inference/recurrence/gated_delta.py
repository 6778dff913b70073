"""The gated delta rule, a chunk of positions at a time, in plain MLX operations with a gradient.

With a state S (Dv, Dk), a gate g, a rate beta, and a key, a value and a query for each position, the rule is

    S <- S * g + beta * (v - (S * g) k) k^T        y = S q

Inside a chunk the corrections d = beta * (v - ...) of all positions solve one triangular system (the WY form: Yang et
al. 2024, arXiv 2406.06484; with gates arXiv 2412.06464, with a gate for each channel arXiv 2510.26692), so that a chunk
is a few matrix products and the state moves once a chunk. Unlike a loop, it keeps one state per chunk for its gradient,
not one per position. With a gate for each channel, whose products between positions take the most memory, the backward
pass computes each segment of chunks again.
"""

from __future__ import annotations

import mlx.core as mx

from inference.recurrence import channels
from inference.recurrence.decay import strictly_lower, windows
from inference.recurrence.segments import in_segments
from inference.recurrence.triangular import unit_lower_inverse

CHUNK = 64
"""Positions in a chunk with one gate per head."""
CHANNEL_CHUNK = 32
"""Positions in a chunk with one gate per channel, where products between positions cost more."""
SEGMENT, CHANNEL_SEGMENT = 1 << 11, 1 << 9
"""Positions times heads computed at a time."""


def chunked_gated_delta(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array | None = None,
    mask: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """The gated delta rule; takes and returns what `gated_delta_ops` of mlx-lm does, and equals it up to rounding.

    All is computed in float32.

    Args:
        q: queries (B, T, Hk, Dk), including the scale of the readout.
        k: keys (B, T, Hk, Dk), of length at most 1. Each head of keys and queries serves Hv / Hk heads of values.
        v: values (B, T, Hv, Dv).
        g: gates in [0, 1], (B, T, Hv), or (B, T, Hv, Dk) with one for each channel.
        beta: rates (B, T, Hv), at most 2.
        state: (B, Hv, Dv, Dk); None: zeros.
        mask: boolean (B, T); where false, the state stays unchanged and the output is 0, as in mlx-lm's kernels.

    Returns:
        Outputs (B, T, Hv, Dv) in the type of q, and the state (B, Hv, Dv, Dk) in float32.
    """
    rows, length, groups, size = k.shape
    heads, width = v.shape[2:]
    per_channel = g.ndim == 4
    whole = mx.float32
    if mask is not None:
        seen = mask.astype(whole)[..., None]
        beta = beta * seen
        open_gate = seen[..., None] if per_channel else seen
        g = g * open_gate + (1.0 - open_gate)
    chunk = min(CHANNEL_CHUNK if per_channel else CHUNK, max(4, 1 << (length - 1).bit_length()))
    shared = (rows, groups, heads // groups)
    before = mx.zeros((*shared, size, width)) if state is None else state.astype(whole).swapaxes(-1, -2)
    before = before.reshape(*shared, size, width)

    def by_head(x: mx.array) -> mx.array:  # (B, T, Hv, ...) -> (B, T, Hk, Hv / Hk, ...)
        return x.astype(whole).reshape(rows, length, groups, heads // groups, *x.shape[3:])

    inputs = [q.astype(whole)[:, :, :, None], k.astype(whole)[:, :, :, None], by_head(v), by_head(g), by_head(beta)]
    rule, most = (_channel_chunks, CHANNEL_SEGMENT) if per_channel else (_chunks, SEGMENT)
    y, after = in_segments(rule, inputs, before, chunk, neutral=(0, 0, 0, 1, 0), most=most, recompute=per_channel)
    y = y.reshape(rows, length, heads, width)
    if mask is not None:
        y = y * mask[..., None, None]
    return y.astype(q.dtype), after.reshape(rows, heads, size, width).swapaxes(-1, -2)


def _chunks(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Chunks in a row: q, k (B, G, 1, N, C, Dk), v (B, G, R, N, C, Dv), g and beta (B, G, R, N, C), state (.., Dk, Dv).

    Every product between two positions includes the decay between them; all factors are at most 1.
    """
    size = g.shape[-1]
    below, keys = strictly_lower(size), k.swapaxes(-1, -2)
    decay = windows(g[..., None])[..., 0]
    from_start = (decay[..., :, 0] * g[..., :1])[..., None]
    to_end = decay[..., -1, :, None]
    rate = beta[..., None]
    corrections = (k @ keys) * (decay * below * rate)
    readout = (q @ keys) * (decay * (below + mx.eye(size)))
    end = from_start[..., -1:, :]
    return _through(corrections, readout, rate * v, rate * from_start * k, q * from_start, k * to_end, end, state)


def _channel_chunks(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """As `_chunks`, with g (B, G, R, N, C, Dk)."""
    rate = beta[..., None]
    corrections, readout, from_start, to_end = channels.products(q, k, g)
    end = from_start[..., -1, :, None]
    corrections = rate * corrections
    return _through(corrections, readout, rate * v, rate * from_start * k, q * from_start, k * to_end, end, state)


def _through(
    corrections: mx.array,
    readout: mx.array,
    values: mx.array,
    old_keys: mx.array,
    old_queries: mx.array,
    new_keys: mx.array,
    end: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """The states from chunk to chunk, and the outputs.

    Args:
        corrections: (..., N, C, C), strictly lower: how much the correction at j takes away at position i.
        readout: (..., N, C, C), lower: how much of the correction at i the query at j reads.
        values: (..., N, C, Dv), times the rate.
        old_keys: (..., N, C, Dk), times the rate: these read the state before the chunk.
        old_queries: likewise for queries.
        new_keys: (..., N, C, Dk): under these, corrections enter the state after the chunk.
        end: decay of the state over the chunk, (..., N, 1, 1) or (..., N, Dk, 1).
        state: (..., Dk, Dv).
    """
    solve = unit_lower_inverse(corrections)
    wanted, found = solve @ values, solve @ old_keys
    writes = mx.contiguous(new_keys.swapaxes(-1, -2))
    states, deltas = [], []
    for chunk in range(values.shape[-3]):
        states.append(state)
        deltas.append(wanted[..., chunk, :, :] - found[..., chunk, :, :] @ state)
        state = end[..., chunk, :, :] * state + writes[..., chunk, :, :] @ deltas[-1]
    y = old_queries @ mx.stack(states, axis=-3) + readout @ mx.stack(deltas, axis=-3)
    return y, state
