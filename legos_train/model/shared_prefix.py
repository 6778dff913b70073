"""Computes the tokens that all rows start with only once, inside the autograd graph.

What a causal model keeps of a position (keys and values, a recurrent state, the tail of a convolution) depends on the
tokens up to it, so rows with a common prefix share it. The prefix runs once as a batch of one; the rest of the rows
continues from what its layers kept, broadcast. Nothing is detached: gradients through the prefix are summed over the
rows, as in a plain forward.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, RotatingKVCache, make_prompt_cache

from legos_train.model.decoder import continued


class PrefixKV:
    """Stands in for mlx-lm's KVCache and keeps one layer's keys and values (1, heads, P, dim) of the prefix."""

    offset = 0
    keys: mx.array
    values: mx.array

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys, self.values = keys, values
        return keys, values

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def make_mask(self, size: int, **kwargs: Any) -> mx.array | str | None:
        return _causal(size, self.offset, **kwargs)


class ContinuedKV(PrefixKV):
    """One layer's prefix as the cache of U rows that continue it."""

    def __init__(self, prefix: PrefixKV) -> None:
        self.prefix = prefix.keys_and_values()
        self.offset = prefix.keys.shape[2]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return super().update_and_fetch(continued(self.prefix[0], keys), continued(self.prefix[1], values))


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


def windows_of(model: Any) -> list[int]:
    """How many positions its layers keep, where that is limited; shortest first."""
    kept = make_prompt_cache(model)
    flat = [inner for cache in kept for inner in (cache.caches if type(cache) is CacheList else [cache])]
    limits = (getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None) for cache in flat)
    return sorted({int(limit) for limit in limits if limit})


def hidden_states(model: Any, body: Callable[..., mx.array], tokens: mx.array, prefix: int) -> mx.array:
    """Hidden states (U, T - prefix, H) after the first `prefix` columns of tokens (U, T), which all rows share.

    `model` decides what its layers keep; `body` is the model without its head.

    Raises:
        TypeError: a layer keeps what rows cannot share.
    """
    if not prefix:
        return body(tokens, cache=None)  # some bodies have no default
    kept = [_empty(cache) for cache in make_prompt_cache(model)]
    body(tokens[:1, :prefix], cache=kept)  # its output is never evaluated, only what its layers keep
    return body(tokens[:, prefix:], cache=[_shared(cache, len(tokens)) for cache in kept])


def _empty(cache: Any) -> Any:
    if type(cache) is CacheList:
        return CacheList(*map(_empty, cache.caches))
    if type(cache) not in (KVCache, RotatingKVCache, ChunkedKVCache, ArraysCache):
        raise TypeError(f"rows cannot share a {type(cache).__name__}")
    return PrefixKV() if type(cache) is KVCache else cache


def _shared(cache: Any, rows: int) -> Any:
    """What a layer kept of the prefix, as the cache of all rows."""

    def broadcast(array: mx.array | None) -> mx.array | None:
        return None if array is None else mx.broadcast_to(array, (rows, *array.shape[1:]))

    if type(cache) is CacheList:
        return CacheList(*(_shared(inner, rows) for inner in cache.caches))
    if type(cache) is PrefixKV:
        return ContinuedKV(cache)
    own = copy.copy(cache)
    if type(cache) is ArraysCache:
        own.cache = [broadcast(array) for array in cache.cache]
    else:
        own.keys, own.values = broadcast(cache.keys), broadcast(cache.values)
    return own
