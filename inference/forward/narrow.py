"""Sliding windows made so narrow that a few tokens show whether a model's masks fit its windows.

Real windows have hundreds of entries. A shorter trial would miss a model with its own masking, and a longer one would
cost as much as a long prompt at every start.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, RotatingKVCache

from inference.forward.mlx_forward import Logits, MlxForward, trial
from inference.forward.solo_forward import SoloForward

WINDOW = 3


class _Narrow(RotatingKVCache):
    """Gives a model its cache's window, whatever window it asks for."""

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:
        return super().make_mask(N, None, return_array)


def trials(own: MlxForward, solo: SoloForward) -> tuple[list[Logits], list[Logits]] | None:
    """The trial over slots and over mlx-lm's caches with narrow windows; None for a model without windows.

    Also None for a model that cannot run with other windows than its own. Raises whatever the model raises over slots.
    """
    if not any(isinstance(part, RotatingKVCache) for part in _leaves(own.templates)):
        return None
    theirs, ours = copy.copy(solo), copy.copy(own)
    theirs.make_caches = lambda: [_narrowed(cache, _Narrow) for cache in solo.make_caches()]
    ours.templates = [_narrowed(cache, RotatingKVCache) for cache in own.templates]
    try:
        expected = trial(theirs, solo.bank.base, pads=own.pads)
    except Exception:  # the model builds its own masks
        return None
    return trial(ours, own.bank.base, pads=own.pads), expected


def _leaves(caches: Sequence[Any]) -> list[Any]:
    return [part for cache in caches for part in (_leaves(cache.caches) if isinstance(cache, CacheList) else [cache])]


def _narrowed(cache: Any, kind: type[RotatingKVCache]) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*(_narrowed(part, kind) for part in cache.caches))
    return kind(WINDOW, cache.keep) if isinstance(cache, RotatingKVCache) else cache
