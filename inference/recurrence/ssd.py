"""The recurrence of Mamba 2, a chunk of positions at a time, in plain MLX operations with a gradient.

With a state S (dh, n), a step dt and a head's rate A < 0, the rule is (Dao and Gu 2024, arXiv 2405.21060)

    S <- exp(dt * A) * S + dt * x B^T        y = S C + D * x

mlx-lm's version works in chunks of 256 and keeps several numbers per pair of positions for the gradient. Here chunks
are smaller.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from inference.recurrence.decay import strictly_lower, windows
from inference.recurrence.segments import in_segments

CHUNK = 64
SEGMENT = 1 << 12
"""Positions times heads computed at a time."""


def chunked_ssd(
    x: mx.array,
    A_log: mx.array,
    B: mx.array,
    C: mx.array,
    D: mx.array,
    dt: mx.array,
    dt_bias: mx.array,
    state: mx.array | None = None,
    time_step_limit: tuple[float, float] = (0.001, 100.0),
    mask: mx.array | None = None,
    lengths: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """The recurrence of Mamba 2; takes and returns what `ssm_attn` of mlx-lm does, and equals it up to rounding.

    All is computed in float32.

    Args:
        x: inputs (b, T, h, dh).
        A_log: the logarithm of -A, (h,).
        B: how inputs enter the state, (b, T, groups, n).
        C: how the state is read, (b, T, groups, n).
        D: weight of the input in the output, (h,).
        dt: steps (b, T, h), before the bias and softplus.
        dt_bias: (h,).
        state: (b, h, dh, n); None: zeros.
        time_step_limit: least and largest step.
        mask: boolean (b, T); where false, the state stays unchanged. Outputs there are meaningless.
        lengths: (b,); from this position on, a row's state stays unchanged. Outputs there are meaningless.

    Returns:
        Outputs (b, T, h, dh) in the type of x (or the type that D promotes it to), and the state (b, h, dh, n) in
        float32.
    """
    rows, length, heads, width = x.shape
    groups, size = B.shape[2:]
    whole = mx.float32
    steps = mx.clip(nn.softplus(dt.astype(whole) + dt_bias), *time_step_limit)
    if lengths is not None:
        inside = mx.arange(length) < lengths[:, None]
        mask = inside if mask is None else mask & inside
    if mask is not None:
        steps = steps * mask[..., None]  # exp(0) = 1 keeps the state, and nothing enters it
    gates = mx.exp(-mx.exp(A_log.astype(whole)) * steps)
    shared = (rows, groups, heads // groups)
    before = mx.zeros((rows, heads, width, size)) if state is None else state.astype(whole)
    inputs = [
        C.astype(whole)[:, :, :, None],
        B.astype(whole)[:, :, :, None],
        (steps[..., None] * x.astype(whole)).reshape(rows, length, *shared[1:], width),
        gates.reshape(rows, length, *shared[1:]),
    ]
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    before = before.reshape(*shared, width, size).swapaxes(-1, -2)
    y, after = in_segments(_chunks, inputs, before, chunk, neutral=(0, 0, 0, 1), most=SEGMENT)
    y = y.reshape(rows, length, heads, width).astype(x.dtype) + x * D[:, None]
    return y, after.swapaxes(-1, -2).reshape(rows, heads, width, size)


def _chunks(c: mx.array, b: mx.array, x: mx.array, gates: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    """Chunks in a row: c, b (B, G, 1, N, C, n), x (B, G, R, N, C, d), gates (B, G, R, N, C), state (B, G, R, n, d)."""
    size = gates.shape[-1]
    decay = windows(gates[..., None])[..., 0]
    from_start = (decay[..., :, 0] * gates[..., :1])[..., None]
    readout = (c @ b.swapaxes(-1, -2)) * (decay * (strictly_lower(size) + mx.eye(size)))
    written = (b * decay[..., -1, :, None]).swapaxes(-1, -2) @ x
    states = []
    for chunk in range(x.shape[-3]):
        states.append(state)
        state = from_start[..., chunk, -1:, :] * state + written[..., chunk, :, :]
    return readout @ x + (c * from_start) @ mx.stack(states, axis=-3), state
