"""A recurrence over long sequences, a segment of chunks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

Chunks = Callable[..., tuple[mx.array, mx.array]]


def in_segments(
    chunks: Chunks,
    inputs: Sequence[mx.array],
    state: mx.array,
    chunk: int,
    neutral: Sequence[int],
    most: int,
    recompute: bool = False,
) -> tuple[mx.array, mx.array]:
    """Outputs (B, T, G, R, Dv) and the last state of a chunkwise recurrence.

    Args:
        chunks: maps inputs (B, G, R, N, C, ...) and the state to outputs (B, G, R, N, C, Dv) and the state after.
        inputs: arrays (B, T, G, R, ...); R may be 1 in some.
        state: before the first position.
        chunk: positions in a chunk, C.
        neutral: for each input, the number that leaves the state unchanged, to pad the last chunk.
        most: positions times heads computed at a time, at least one chunk. This bounds the memory of the forward pass
            beyond inputs, outputs and one state for each segment.
        recompute: whether it bounds the memory of the gradient, too: each segment is computed again for it.
    """
    rows, length, groups = inputs[0].shape[:3]
    at_once = max(1, most // (rows * groups * max(x.shape[3] for x in inputs) * chunk)) * chunk
    step = mx.checkpoint(chunks) if recompute else chunks
    outputs = []
    for start in range(0, length, at_once):
        taken = min(at_once, length - start)
        count = -(-taken // chunk)
        parts = [
            _by_chunk(x[:, start : start + taken], count, chunk, fill) for x, fill in zip(inputs, neutral, strict=True)
        ]
        y, state = step(*parts, state)
        outputs.append(_by_position(y)[:, :taken])
    return (outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)), state


def _by_chunk(x: mx.array, count: int, chunk: int, fill: int) -> mx.array:
    """(B, T, G, R, ...) -> (B, G, R, count, chunk, ...)."""
    if missing := count * chunk - x.shape[1]:
        x = mx.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2), constant_values=fill)
    x = x.reshape(x.shape[0], count, chunk, *x.shape[2:])
    return mx.contiguous(x.transpose(0, 3, 4, 1, 2, *range(5, x.ndim)))


def _by_position(y: mx.array) -> mx.array:
    """The inverse of `_by_chunk`."""
    y = y.transpose(0, 3, 4, 1, 2, 5)
    return y.reshape(y.shape[0], -1, *y.shape[3:])
