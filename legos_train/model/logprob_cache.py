"""A cache of log-probabilities of a fixed policy, keyed by context.

Self-play on a small game returns to the same contexts in every step; the reference policy's log-probabilities for them
are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference.bounded_cache import BoundedCache
from legos_train.loss.batch import Batch

MOST, MOST_BYTES = 1 << 20, 256 << 20
Compute = Callable[[Batch], mx.array]
"""A batch -> log-probabilities (K, V) at its sites, or (M,) of its sampled tokens."""


class LogprobCache:
    """Entries keyed by the digest of a context (`Batch.keys`)."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.entries: BoundedCache[NDArray[np.float32]] = BoundedCache(MOST, MOST_BYTES)

    def rows(self, batch: Batch, compute: Compute) -> mx.array:
        """Whole distributions (K, V) at the sites of the batch; `compute` provides those not cached."""
        return mx.array(self._look_up(batch, batch.keys, np.arange(len(batch.keys)), None, compute))

    def chosen(self, batch: Batch, compute: Compute) -> mx.array:
        """Log-probabilities (M,) of the sampled tokens, for vocabularies too large to keep whole distributions.

        `compute`, too, gives those of the sampled tokens only.
        """
        pairs, index = np.unique(np.stack([batch.position, batch.target]), axis=1, return_inverse=True)
        keys = _pairs(batch.keys, *pairs)
        return mx.array(self._look_up(batch, keys, pairs[0], pairs[1], compute)[index.reshape(-1)])

    def _look_up(
        self, batch: Batch, keys: list[bytes], sites: NDArray, tokens: NDArray | None, compute: Compute
    ) -> NDArray[np.float32]:
        """One entry per key: the distribution at its site, or with `tokens` the log-probability of its token there."""
        known = {key: value for key in keys if (value := self.entries.get(key)) is not None}
        missing = [place for place, key in enumerate(keys) if key not in known]
        if missing:
            wanted = np.zeros(len(batch.keys), dtype=bool)
            wanted[sites[missing]] = True
            part = batch.select(wanted[batch.position])
            own = part.keys if tokens is None else _pairs(part.keys, part.position, part.target)
            place_of = {key: place for place, key in enumerate(own)}
            fresh = np.array(compute(part)[mx.array([place_of[keys[place]] for place in missing])])
            for place, value in zip(missing, fresh, strict=True):
                known[keys[place]] = self.entries.put(keys[place], np.array(value))
        return np.stack([known[key] for key in keys])


def _pairs(keys: Sequence[bytes], sites: NDArray, tokens: NDArray) -> list[bytes]:
    """A key for each sampled token at its site."""
    return [keys[site] + b"|" + int(token).to_bytes(4, "little") for site, token in zip(sites, tokens, strict=True)]
