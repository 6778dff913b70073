"""The base model's log-probabilities of the sampled tokens, cached by sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inference.bounded_cache import BoundedCache
from legos_train.model.tinker.data import SampledSequence
from legos_train.model.tinker.sampler import TinkerEngine

MOST, MOST_BYTES = 1 << 20, 64 << 20


class Reference:
    """The base's log-probabilities."""

    def __init__(self, engine: TinkerEngine):
        self.engine = engine
        self.clear()

    def logprobs(self, parts: Sequence[SampledSequence]) -> list[NDArray[np.float32]]:
        """Those of the sampled tokens of each sequence, (k,). Tokens outside the sequence are queried alone."""
        asked = [sequence for part in parts for sequence in _readable(part)]
        keys = [np.array(sequence, dtype=np.int32).tobytes() for sequence in asked]
        known = {key: value for key in keys if (value := self._kept.get(key)) is not None}
        missing = {key: sequence for key, sequence in zip(keys, asked, strict=True) if key not in known}
        for key, found in zip(missing, self.engine.sequence_logprobs(list(missing.values())), strict=True):
            known[key] = self._kept.put(key, found)
        by_key = iter(keys)
        return [_at(part, [known[next(by_key)] for _ in _readable(part)]) for part in parts]

    def clear(self) -> None:
        """Forgets everything."""
        self._kept: BoundedCache[NDArray[np.float32]] = BoundedCache(MOST, MOST_BYTES)


def _off(part: SampledSequence) -> list[int]:
    """Which of the sampled tokens differ from the sequence's next token."""
    read = np.append(part.tokens[1:], part.targets[-1])
    return np.flatnonzero(read[part.cols] != part.targets[part.cols]).tolist()


def _readable(part: SampledSequence) -> list[list[int]]:
    """The sequences that together contain every sampled token after its context."""
    apart = [[*part.tokens[: part.cols[i] + 1].tolist(), int(part.targets[part.cols[i]])] for i in _off(part)]
    return [part.whole, *apart]


def _at(part: SampledSequence, found: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    values = found[0][part.cols].copy()
    for index, one in zip(_off(part), found[1:], strict=True):
        values[index] = one[-1]
    return values
