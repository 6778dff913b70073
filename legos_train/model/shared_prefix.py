"""Computes the tokens that all rows start with only once, inside the autograd graph.

A causal transformer's keys and values at a position depend on the tokens up to it, so rows with a common prefix share
them. The prefix runs once as a batch of one; the rest of the rows attends to its keys and values, broadcast.
Nothing is detached: gradients through the prefix are summed over the rows, as in a plain forward.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache, make_prompt_cache

from legos_train.model.decoder import continued


class PrefixKV:
    """Stands in for mlx-lm's KVCache and keeps one layer's keys and values (1, heads, P, dim) of the prefix."""

    offset = 0
    keys: mx.array
    values: mx.array

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys, self.values = keys, values
        return keys, values

    def make_mask(self, size: int, **kwargs: Any) -> mx.array | str | None:
        return _causal(size, 0, **kwargs)


class ContinuedKV:
    """One layer's prefix as the cache of U rows that continue it."""

    def __init__(self, prefix: PrefixKV) -> None:
        self.prefix = prefix
        self.offset = prefix.keys.shape[2]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return continued(self.prefix.keys, keys), continued(self.prefix.values, values)

    def make_mask(self, size: int, **kwargs: Any) -> mx.array | str | None:
        return _causal(size, self.offset, **kwargs)


def _causal(
    size: int, offset: int, window_size: int | None = None, return_array: bool = False
) -> mx.array | str | None:
    """The mask for `size` new positions after `offset` earlier ones, in the forms mlx-lm's models accept."""
    if return_array or (window_size and offset + size > window_size):
        return create_causal_mask(size, offset, window_size=window_size)
    return None if size == 1 else "causal"


def has_plain_cache(model: Any) -> bool:
    """True if every layer of the model keeps plain keys and values: no rotation, no recurrent state."""
    return all(type(cache) is KVCache for cache in make_prompt_cache(model))


def hidden_states(body: Any, blocks: int, tokens: mx.array, prefix: int) -> mx.array:
    """Hidden states (U, T - prefix, H) after the first `prefix` columns of tokens (U, T), which all rows share."""
    if not prefix:
        return body(tokens, cache=None)  # some bodies have no default
    shared = [PrefixKV() for _ in range(blocks)]
    body(tokens[:1, :prefix], cache=shared)  # its output is never evaluated, only the keys and values
    return body(tokens[:, prefix:], cache=[ContinuedKV(layer) for layer in shared])
