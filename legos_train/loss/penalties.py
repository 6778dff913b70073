"""What is added to the loss of a token: KL to a reference, and entropy over all, legal or the likeliest tokens."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference import fastmath

OUT = -1e9  # log-probability of what is not in a set; not -inf, whose product with probability 0 is not a number


def distribution(logits: mx.array) -> tuple[mx.array, mx.array]:
    """(..., V) -> log-probabilities and probabilities (..., V), with one exponential per element, gradient included.

    Exponentials are what a small vocabulary costs on the CPU; see fastmath.py.
    """
    return fastmath.distribution(logits)


def token_logprobs(logprobs: mx.array, position: mx.array, target: mx.array) -> mx.array:
    """Pick from log-probabilities (K, V) those of token `target` (M,) at site `position` (M,) -> (M,)."""
    return logprobs[position, target]


def kl_k3(new: mx.array, reference: mx.array) -> mx.array:
    """`exp(ref - new) - (ref - new) - 1`, never negative; its mean over samples of the policy is KL(policy || ref)."""
    gap = reference - new
    return fastmath.exp(gap) - gap - 1.0


def kl_exact(logprobs: mx.array, probs: mx.array, reference: mx.array) -> mx.array:
    """KL(policy || reference) at each site, (K, V) and (K, V) of the policy, (K, V) log of the reference -> (K,)."""
    return mx.sum(probs * (logprobs - reference), axis=-1)


def entropy(logprobs: mx.array, probs: mx.array) -> mx.array:
    """Entropy in nats of (K, V) log-probabilities and probabilities -> (K,)."""
    return -mx.sum(probs * logprobs, axis=-1)


def entropy_within(logprobs: mx.array, sets: Sequence[Sequence[int]]) -> mx.array:
    """Entropies (P,) of (P, V) log-probabilities restricted to one set of token ids each, renormalised.

    Only the odds between the tokens of a set matter, so a bonus on it moves no mass to any other token. An empty set
    has entropy 0.
    """
    width = max(map(len, sets), default=0)
    if width == 0:
        return mx.zeros((len(sets),), dtype=logprobs.dtype)
    ids, there = np.zeros((len(sets), width), dtype=np.int32), np.zeros((len(sets), width), dtype=bool)
    for place, chosen in enumerate(sets):
        ids[place, : len(chosen)], there[place, : len(chosen)] = chosen, True
    there[:, 0] |= ~there.any(axis=1)  # of an empty set one token remains, with entropy 0
    picked = mx.take_along_axis(logprobs, mx.array(ids), axis=1)
    return entropy(*distribution(mx.where(mx.array(there), picked, mx.array(OUT, dtype=picked.dtype))))


def entropy_top(logprobs: mx.array, count: int) -> mx.array:
    """Entropies (K,) of the `count` likeliest tokens of (K, V) log-probabilities, renormalised."""
    if count >= logprobs.shape[-1]:
        return entropy(*distribution(logprobs))
    likeliest = mx.argpartition(-mx.stop_gradient(logprobs), count - 1, axis=-1)[:, :count]
    return entropy(*distribution(mx.take_along_axis(logprobs, likeliest, axis=1)))


def bonus(
    logprobs: mx.array,
    probs: mx.array,
    position: NDArray[np.int32],
    legal: NDArray[np.int32],
    sets: Sequence[Sequence[int]],
    weights: NDArray,
) -> mx.array:
    """Sum over tokens of weight times entropy within the token's set, `legal` (M,); -1: of the whole distribution.

    logprobs, probs (K, V) at the sites; position (M,) the token's site. Each pair of site and set is computed once.
    """
    pairs, inverse = np.unique(np.stack([position, legal]), axis=1, return_inverse=True)
    share = np.bincount(inverse.reshape(-1), weights, pairs.shape[1])
    total = mx.array(0.0, dtype=logprobs.dtype)
    for whole in (True, False):
        chosen = (pairs[1] < 0) == whole
        if not chosen.any():
            continue
        sites, weight = mx.array(pairs[0][chosen]), mx.array(share[chosen].astype(np.float32))
        if whole:
            values = entropy(logprobs[sites], probs[sites])
        else:
            values = entropy_within(logprobs[sites], [sets[number] for number in pairs[1][chosen]])
        total = total + mx.sum(weight * values)
    return total
