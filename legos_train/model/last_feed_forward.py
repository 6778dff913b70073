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
    """A pointwise module that leaves all positions but some at zero. x (U, T, H)."""

    def __init__(self, inner: nn.Module, rows: mx.array, columns: mx.array) -> None:
        super().__init__()
        self._inner, self._rows, self._columns = inner, rows, columns

    def __call__(self, x: mx.array, *args: Any) -> mx.array:
        y = self._inner(x[self._rows, self._columns][None], *args)[0]
        out = mx.zeros((*x.shape[:-1], y.shape[-1]), y.dtype)
        return out.at[self._rows, self._columns].add(y)


@contextmanager
def at_sites(body: Any, rows: mx.array, columns: mx.array) -> Iterator[None]:
    """Within this context the body's last feed-forward part computes these positions only, each given once.

    Raises:
        AttributeError: the body's last layer has no such part.
    """
    layer = body.layers[-1]
    name = next((name for name in NAMES if isinstance(layer.get(name), nn.Module)), None)
    if name is None:
        raise AttributeError(f"the last layer has none of {', '.join(NAMES)}")
    inner = layer[name]
    layer[name] = _AtSites(inner, rows, columns)
    try:
        yield
    finally:
        layer[name] = inner
