"""The inverse of a unit lower triangular matrix, by blocks.

MLX's own solvers run on the CPU only and have no gradient. A product of powers, (1 - A)(1 + A^2)(1 + A^4)..., is exact
on paper, but with equal keys the entries of A^32 reach 1e17 where those of the inverse are 0 and 1. Joining blocks pair
by pair is as stable as substitution and takes two products for each doubling.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx

from inference.recurrence.decay import flush_to_zero

_FIRST = 4  # powers up to the cube of a block this small cannot grow


def unit_lower_inverse(lower: mx.array) -> mx.array:
    """The inverse of 1 + `lower`, differentiable.

    Args:
        lower: (..., C, C), zero on and above the diagonal; C is 4 times a power of two.
    """
    return cast(mx.array, _inverse(lower))


@mx.custom_function
def _inverse(lower: mx.array) -> Any:
    size, count = lower.shape[-1], lower.shape[-1] // _FIRST
    block = _diagonal_blocks(lower, count)
    unit = mx.eye(_FIRST)
    inverse = (unit - block) @ (unit + block @ block)
    while count > 1:
        count, width = count // 2, size // count
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = flush_to_zero(second @ _diagonal_blocks(lower, count)[..., width:, :width] @ first)
        above = mx.concatenate([first, mx.zeros_like(first)], axis=-1)
        inverse = mx.concatenate([above, mx.concatenate([-corner, second], axis=-1)], axis=-2)
    return inverse[..., 0, :, :]


@_inverse.vjp
def _inverse_vjp(lower: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    transposed = out.swapaxes(-1, -2)
    return mx.tril(-(transposed @ cotangent @ transposed), -1)


def _diagonal_blocks(matrix: mx.array, count: int) -> mx.array:
    """(..., C, C) -> (..., count, C / count, C / count)."""
    *batch, size, _ = matrix.shape
    blocks = matrix.reshape(*batch, count, size // count, count, size // count)
    return mx.moveaxis(mx.diagonal(blocks, axis1=-4, axis2=-2), -1, -3)
