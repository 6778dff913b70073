"""How much of an earlier position's write survives to a later one: products of gates over windows of positions.

A chunkwise recurrence needs the product of the gates between every two positions of a chunk. Computed as exponentials
of differences of cumulative logarithms, these overflow or lose their digits when a gate is nearly closed; running
products do neither, and need no exponential.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx

from inference.forward import fastmath

_CLOSED = 1e-12
"""Smaller gates are raised to this value: next to nothing survives either way, and the gradient divides by the gate."""


def flush_to_zero(x: mx.array) -> mx.array:
    """x, with 0 in place of numbers closer to 0 than `NEGLIGIBLE`."""
    return mx.where(mx.abs(x) < fastmath.NEGLIGIBLE, 0.0, x)


def windows(gates: mx.array) -> mx.array:
    """Products over windows: entry (j, i) is gates[i + 1] * ... * gates[j], and 1 where i >= j.

    Differentiable, even where a gate is 0.

    Args:
        gates: float32 (..., C, K), each in [0, 1].

    Returns:
        float32 (..., C, C, K).
    """
    return cast(mx.array, _windows(mx.maximum(mx.stop_gradient(gates), _CLOSED) + (gates - mx.stop_gradient(gates))))


def strictly_lower(size: int) -> mx.array:
    """float32 (size, size): 1 below the diagonal, else 0."""
    return mx.tril(mx.ones((size, size)), -1)


@mx.custom_function
def _windows(gates: mx.array) -> Any:
    later = strictly_lower(gates.shape[-2])[..., None]
    return flush_to_zero(mx.cumprod(later * gates[..., None, :] + (1.0 - later), axis=-3))


@_windows.vjp
def _windows_vjp(gates: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    # A gate is a factor of every window that begins before it and ends at it or after it.
    ends_later = mx.cumsum(cotangent * out, axis=-3, reverse=True)
    return mx.sum(ends_later * strictly_lower(gates.shape[-2])[..., None], axis=-2) / gates
