"""The next tokens as drawn by the device, before the host has seen a logit.

Uses the same distributions and uniform numbers as `sampling`, in the device's precision. These draws are only fed: the
host draws again from the same logits, and if the two differ, the host's token counts. They differ when the number lies
within rounding of a boundary, or when something known only to the host decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from inference.engine.sampling import CheckedParams, is_filtered, is_greedy


def guessable(params: CheckedParams) -> bool:
    """Whether logits and numbers alone decide: constrained answers are drawn only by the host.

    Speculating requests look ahead in their own way.
    """
    return params.allowed is params.guide is None and not params.logit_bias and not params.speculate


def guess(logits: mx.array, params: Sequence[CheckedParams], numbers: npt.NDArray[np.float64]) -> mx.array:
    """Draws a token from each row of logits (n, V), lazily: (n,) int32, always valid ids whatever the logits.

    Args:
        logits: float32.
        params: each row's.
        numbers: (n,) uniform.
    """
    best = mx.argmax(logits, axis=-1).astype(mx.int32)
    drawn = np.array([not is_greedy(p) for p in params])
    if not drawn.any():
        return best
    if any(p.temperature != 1.0 for p, d in zip(params, drawn) if d):
        logits = logits / _column([p.temperature if d else 1.0 for p, d in zip(params, drawn)])
    weights = mx.exp(logits - logits.max(axis=-1, keepdims=True))
    if any(is_filtered(p) for p in params):
        weights = mx.where(weights >= _threshold(weights, params), weights, 0.0)
    below = mx.cumsum(weights, axis=-1)
    picks = (below <= below[:, -1:] * _column(numbers)).sum(axis=-1).astype(mx.int32)
    picks = mx.minimum(picks, logits.shape[-1] - 1)
    return picks if drawn.all() else mx.where(mx.array(drawn), picks, best)


def _threshold(weights: mx.array, params: Sequence[CheckedParams]) -> mx.array:
    """The smallest weight (n, 1) that min_p, top_k and top_p leave of weights (n, V) whose maximum is 1."""
    size = weights.shape[-1]
    ordered = -mx.sort(-weights, axis=-1)
    count = (ordered >= _column([p.min_p for p in params])).sum(axis=-1, keepdims=True)
    count = mx.minimum(count, mx.array([[min(p.top_k, size) or size] for p in params]))
    if any(p.top_p < 1.0 for p in params):
        below = mx.cumsum(ordered, axis=-1)
        total = mx.take_along_axis(below, mx.maximum(count, 1) - 1, axis=-1)
        # top_p = 1 keeps everything, however the sum rounds.
        top_p = _column([p.top_p if p.top_p < 1.0 else 2.0 for p in params])
        count = mx.minimum(count, (below < top_p * total).sum(axis=-1, keepdims=True) + 1)
    return mx.take_along_axis(ordered, mx.maximum(count, 1) - 1, axis=-1)


def _column(values: Sequence[float] | npt.NDArray[np.float64]) -> mx.array:
    return mx.array(np.asarray(values, dtype=np.float32)[:, None])
