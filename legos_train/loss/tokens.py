"""The losses of a token, and the correction for samples of another policy. All pure functions of arrays (M,)."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference import fastmath

Floats = NDArray[np.float64]


def importance_sampling(new: mx.array, old: mx.array, advantages: mx.array) -> mx.array:
    """`-r A`, all (M,)."""
    return -fastmath.exp(new - old) * advantages


def ppo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    """`-min(r A, clip(r) A)`, all (M,): no gradient from tokens already moved far enough in the wanted direction."""
    return _clipped(fastmath.exp(new - old), advantages, clip_low, clip_high)


def cispo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    """`-stop_gradient(clip(r)) A new`, all (M,): clipped tokens keep a bounded gradient instead of none."""
    ratio = mx.clip(fastmath.exp(new - old), 1.0 - clip_low, 1.0 + clip_high)
    return -mx.stop_gradient(ratio) * advantages * new


def sft(new: mx.array) -> mx.array:
    """`-new`, (M,): the negative log-likelihood of what was said. Advantages play no part: every action that is still
    in the batch is imitated alike, so what should not be must be left out of it."""
    return -new


def gspo(
    new: mx.array,
    old: mx.array,
    advantages: mx.array,
    sequence: NDArray[np.int32],
    *,
    clip_low: float,
    clip_high: float,
    lengths: NDArray[np.int32] | None = None,
) -> mx.array:
    """ppo with one ratio a turn, `exp(mean over its tokens of (new - old))`; `sequence` (M,) says whose turn it is.

    `lengths` (M,): how many tokens the turn has, where some are not among the M; each of those counts as `new = old`.
    """
    index, sizes = _turns(sequence, lengths)
    turn = mx.array(index)
    sums = mx.zeros((len(sizes),), dtype=new.dtype).at[turn].add(new - old)
    return _clipped(fastmath.exp((sums / mx.array(sizes).astype(new.dtype))[turn]), advantages, clip_low, clip_high)


def turn_means(values: NDArray, sequence: NDArray[np.int32], lengths: NDArray[np.int32] | None = None) -> Floats:
    """Means over turns of values (M,), given back to each token (M,); `lengths` as in `gspo`."""
    index, sizes = _turns(sequence, lengths)
    return np.asarray((np.bincount(index, values, len(sizes)) / sizes)[index], dtype=np.float64)


def _turns(sequence: NDArray, lengths: NDArray | None) -> tuple[NDArray[np.int64], NDArray]:
    """For each token the place of its turn, and the lengths of the turns."""
    _, first, index, sizes = np.unique(sequence, return_index=True, return_inverse=True, return_counts=True)
    return index.reshape(-1), sizes if lengths is None else lengths[first]


def truncated_weights(gap: NDArray, limit: float) -> Floats:
    """`min(exp(gap), limit)`, with `gap = start - old` (M,): truncated importance sampling (Ionides 2008, J. Comput.
    Graph. Stat. 17(2)). A sample that the sampler thought ten times less likely does not count ten times."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(np.asarray(gap, dtype=np.float64)), limit)


def inside(gap: NDArray, low: float, high: float) -> NDArray[np.bool_]:
    """Whether `exp(gap)` lies within [low, high]; the gap of a turn is the mean over its tokens."""
    with np.errstate(divide="ignore"):
        return (gap >= np.log(low)) & (gap <= np.log(high))


def _clipped(ratio: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    return -mx.minimum(ratio * advantages, mx.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)
