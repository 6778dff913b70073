"""A batch as the Tinker API takes it: sequences with targets, sampler's log-probabilities and advantages.

Turns of one trajectory that continue each other form one sequence. Sequences that differ only in the size of their
advantages are sent once, with the sum: the losses are linear in the advantage as long as its sign is the same.
Self-play on a small game asks the same few questions hundreds of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from legos_train.loss.batch import Batch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """A sequence of n tokens with k sampled ones in it.

    Attributes:
        tokens: (n,) the model's input.
        targets: (n,) the next token at each position; only those at `cols` count.
        cols: (k,) the positions of the sampled tokens, ascending.
        old: (k,) their log-probabilities under the sampler.
        advantages: (k,) weight times advantage, summed over all that were merged.
        members: for each of the k, the tokens of the batch that it represents.
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int64]
    cols: NDArray[np.int64]
    old: Floats
    advantages: Floats
    members: tuple[NDArray[np.int64], ...]

    def __len__(self) -> int:
        """N, the length of the sequence."""
        return len(self.tokens)

    @property
    def whole(self) -> list[int]:
        """The tokens including the last sampled one, n + 1."""
        return [*self.tokens.tolist(), int(self.targets[-1])]

    @property
    def silent(self) -> SampledSequence:
        """The same without advantages."""
        return replace(self, advantages=np.zeros(len(self.cols)))


def items(batch: Batch, old: NDArray, advantages: NDArray) -> list[SampledSequence]:
    """The batch as sequences.

    Args:
        batch: M sampled tokens.
        old: (M,) denominators of the ratios.
        advantages: (M,) weight times advantage.
    """
    cols = batch.cols[batch.position]
    merged: dict[tuple[bytes, ...], list[NDArray[np.int64]]] = {}
    for own in _turns(batch, cols):
        tokens = batch.tokens[batch.row[own[0]], : cols[own[-1]] + 1]
        signs = np.sign(advantages[own]).astype(np.int8)
        key = tuple(a.tobytes() for a in (tokens, cols[own], batch.target[own], batch.version[own], signs))
        merged.setdefault(key, []).append(own)
    return [_item(batch, cols, np.stack(group), old, advantages) for group in merged.values()]


def _turns(batch: Batch, cols: NDArray) -> list[NDArray[np.int64]]:
    """The tokens of a trajectory in one row, as positions in the batch by column; turn by turn if they overlap."""
    order = np.lexsort((cols, batch.row, batch.trajectory))
    same = (np.diff(batch.trajectory[order]) == 0) & (np.diff(batch.row[order]) == 0)
    out: list[NDArray[np.int64]] = []
    for own in np.split(order, np.flatnonzero(~same) + 1):
        if len(np.unique(cols[own])) == len(own):
            out.append(own)
        else:
            out += [own[batch.sequence[own] == turn] for turn in np.unique(batch.sequence[own])]
    return out


def _item(batch: Batch, cols: NDArray, group: NDArray[np.int64], old: NDArray, advantages: NDArray) -> SampledSequence:
    """One sequence from (g, k) equivalent positions in the batch."""
    first = group[0]
    places = cols[first].astype(np.int64)
    tokens = batch.tokens[batch.row[first[0]], : places[-1] + 1]
    targets = np.append(tokens[1:], 0).astype(np.int64)
    targets[places] = batch.target[first]
    # Rounding alone lets the sampler's numbers differ within a group.
    return SampledSequence(
        tokens,
        targets,
        places,
        np.asarray(old, dtype=np.float64)[group].mean(axis=0),
        np.asarray(advantages, dtype=np.float64)[group].sum(axis=0),
        tuple(group.T),
    )


def spread(values: Sequence[NDArray], parts: Sequence[SampledSequence], size: int) -> NDArray[np.float32]:
    """Values (k,) of each sequence at the tokens of the batch that it represents, (M,)."""
    out = np.zeros(size, dtype=np.float32)
    for value, part in zip(values, parts, strict=True):
        for one, members in zip(value, part.members, strict=True):
            out[members] = one
    return out
