"""Corrections for samples from another policy: weights and masks of tokens, as pure functions of arrays (M,)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def turn_means(values: NDArray, sequence: NDArray[np.int32], lengths: NDArray[np.int32] | None = None) -> Floats:
    """Means over turns of values (M,), given back to each token (M,); `lengths` as in `gspo`."""
    index, sizes = turn_index(sequence, lengths)
    return np.asarray((np.bincount(index, values, len(sizes)) / sizes)[index], dtype=np.float64)


def turn_index(sequence: NDArray, lengths: NDArray | None) -> tuple[NDArray[np.int64], NDArray]:
    """For each token the place of its turn, and the lengths of the turns."""
    _, first, index, sizes = np.unique(sequence, return_index=True, return_inverse=True, return_counts=True)
    return index.reshape(-1), sizes if lengths is None else lengths[first]


def truncated_weights(gap: NDArray, limit: float) -> Floats:
    r"""A weight for stale samples: how much likelier a token is now than when it was sampled, cut off at C.

    $$A \leftarrow \min(p_1 / p_0,\ C)\,A \qquad r = p\,/\,p_1$$

    $p_0$ is the probability of the token when it was sampled, $p_1$ at the start of the optimiser step, p now. The loss
    then measures its own ratio from there, and its clip has nothing to do with staleness. A token that the sampler
    found ten times less likely does not count ten times. With `gspo` there is one weight per turn.

    When: episodes are generated during training, or trained on more than once; or the engine's numerics differ from the
    trainer's.

    When not: fresh samples from the same weights. All weights are 1 then. The losses `sft` and `mirror` refuse it.

    Source: Ionides 2008, "Truncated importance sampling", J. Comput. Graph. Stat. 17(2).

    Args:
        gap: `start - old`, (M,).
        limit: C, above 0.
    """
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(np.asarray(gap, dtype=np.float64)), limit)


def inside(gap: NDArray, low: float, high: float) -> NDArray[np.bool_]:
    r"""A mask for stale turns: those whose probability has changed too much are left out of the loss.

    $$low \le (q_1 q_2 \cdots q_n)^{1/n} \le high \qquad q = p_1 / p_0$$

    $p_0$ is the probability of a token when it was sampled, $p_1$ at the start of the optimiser step; n tokens make the
    turn. The other turns keep their weights, so a batch with one turn left does not take a full step on it.

    When: as for `truncate_ratio`, if samples that are far off should not count at all. Both may be on.

    When not: fresh samples from the same weights. Nothing is left out then. The losses `sft` and `mirror` refuse it.

    Source: IcePop, arXiv 2510.18855; there token by token, here whole turns.

    Args:
        gap: (M,) the mean of `start - old` over the turn of each token.
        low: at most 1.
        high: at least 1.
    """
    with np.errstate(divide="ignore"):
        return (gap >= np.log(low)) & (gap <= np.log(high))
