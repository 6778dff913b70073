"""Products between positions of a chunk where every channel has its own gate.

The decay between two positions is a vector, so it cannot be factored out of the product of keys. A chunk is cut into
blocks. Within a block the decay is written out; between blocks it splits at the first position of the later one into
two factors, both at most 1, and the products are matrix products again (Yang et al. 2023, arXiv 2312.06635, section
4.3).
"""

from __future__ import annotations

import mlx.core as mx

from inference.recurrence.decay import strictly_lower, windows

BLOCK = 4
"""Positions in a block, whose decays are written out."""


def products(q: mx.array, k: mx.array, g: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Keys with earlier keys, queries with keys up to their own, and the decays from the start and to the end.

    Args:
        q: (..., C, Dk).
        k: (..., C, Dk).
        g: gates (..., C, Dk), each in [0, 1].

    Returns:
        Strictly lower (..., C, C) and lower (..., C, C), both with the decay between the two positions; decays
        (..., C, Dk) from before the chunk up to a position, and from a position to the end of the chunk.
    """
    *batch, size, width = g.shape
    block = min(BLOCK, size)
    count = size // block
    g, q, k = (x.reshape(*x.shape[:-2], count, block, width) for x in (g, q, k))
    decay = windows(g)  # (..., count, block, block, Dk)
    from_first = decay[..., :, 0, :] * g[..., :1, :]
    to_last = decay[..., -1, :, :]
    over = from_first[..., -1, :]  # (..., count, Dk): of a whole block
    across = windows(over)  # (..., count, count, Dk)

    below, unit = strictly_lower(block), mx.eye(block)
    both = mx.stack([k, q], axis=-1)  # (..., count, block, Dk, 2)
    inside = (decay * k[..., None, :, :]) @ both  # (..., count, later, earlier, 2)
    inside_k, inside_q = inside[..., 0] * below, inside[..., 1] * (below + unit)

    before = mx.concatenate([mx.zeros_like(across[..., :1, :, :]), across[..., :-1, :, :]], axis=-3)
    before = before * strictly_lower(count)[..., None]  # of the blocks between an earlier one and a later one
    right = (k * to_last)[..., None, :, :, :] * before[..., None, :]  # (..., later, earlier, block, Dk)
    left = mx.concatenate([k * from_first, q * from_first], axis=-2)[..., :, None, :, :]
    between = left @ right.swapaxes(-1, -2)  # (..., later, earlier, 2 * block, block)

    def whole(between: mx.array, inside: mx.array) -> mx.array:
        blocks = between + mx.eye(count)[:, :, None, None] * inside[..., :, None, :, :]
        return blocks.swapaxes(-3, -2).reshape(*batch, size, size)

    lead = mx.concatenate([mx.ones_like(over[..., :1, :]), across[..., :-1, 0, :] * over[..., :1, :]], axis=-2)
    from_start = (from_first * lead[..., None, :]).reshape(*batch, size, width)
    to_end = (to_last * across[..., -1, :, None, :]).reshape(*batch, size, width)
    return (
        whole(between[..., :block, :], inside_k),
        whole(between[..., block:, :], inside_q),
        from_start,
        to_end,
    )
