"""Computes the last block's feed-forward part, up to a fifth of a small model, only where logits are wanted.

It works on each position alone, and nothing reads the last block's output elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx import nn

NAMES = ("mlp", "feed_forward", "block_sparse_moe", "ffn")
"""What mlx-lm's models call it."""


class _AtSites(nn.Module):
    """A pointwise module that leaves all positions of x (U, T, H) but some at zero; other shapes are computed whole."""

    def __init__(self, inner: nn.Module, shape: tuple[int, ...], rows: mx.array, columns: mx.array) -> None:
        super().__init__()
        self._inner, self._shape, self._rows, self._columns = inner, shape, rows, columns

    def __call__(self, x: mx.array, *args: Any) -> mx.array:
        if x.shape[:-1] != self._shape:  # MLX does not check indices
            return self._inner(x, *args)
        y = self._inner(x[self._rows, self._columns][None], *args)[0]
        out = mx.zeros((*x.shape[:-1], y.shape[-1]), y.dtype)
        return out.at[self._rows, self._columns].add(y)


@contextmanager
def at_sites(body: Any, shape: tuple[int, ...], rows: mx.array, columns: mx.array) -> Iterator[None]:
    """Within this context the body's last feed-forward part computes some positions only, each given once.

    Args:
        body: a model without its head.
        shape: rows and columns of the tokens, (U, T).
        rows: of the positions, below U.
        columns: of the positions, below T.

    Raises:
        AttributeError: the body's last layer has no such part.
    """
    layer = body.layers[-1]
    name = next((name for name in NAMES if isinstance(layer.get(name), nn.Module)), None)
    if name is None:
        raise AttributeError(f"the last layer has none of {', '.join(NAMES)}")
    inner = layer[name]
    layer[name] = _AtSites(inner, shape, rows, columns)
    try:
        yield
    finally:
        layer[name] = inner
