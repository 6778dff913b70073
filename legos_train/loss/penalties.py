"""Terms added to the loss of a token: KL to a reference, an entropy bonus, a penalty for illegal answers."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference.forward import fastmath

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
    r"""The k3 estimate of the KL from the sampled token alone, for large vocabularies.

    $$L \leftarrow L + \beta \left(\frac{q}{p} - \log\frac{q}{p} - 1\right)$$

    It is never negative, and its mean over samples of the policy is KL(policy || reference).

    Source: Schulman 2020, "Approximating KL divergence".

    Args:
        new: log-probabilities of the sampled tokens, (M,).
        reference: those of the reference policy, (M,).
    """
    gap = reference - new
    return fastmath.exp(gap) - gap - 1.0


def kl_exact(logprobs: mx.array, probs: mx.array, reference: mx.array) -> mx.array:
    r"""A penalty for moving away from a reference policy, summed over the whole vocabulary at every visited token.

    $$L \leftarrow L + \beta \sum_v p(v)\,\left(\log p(v) - \log q(v)\right)$$

    p is the policy, q the reference: the base model or, with `magnet_every`, the policy or its weight average from some
    steps ago (a moving magnet), mixed with a share `magnet_base` of the base. The weight goes from `kl` to `kl_end`
    over the run.

    When: self-play on games whose equilibria are mixed. Without it the last policy cycles: in the comparison it
    matters more than the credit method does (docs/credit.md). A magnet moves with the policy and does not hold it to
    the base model. One that follows closely also follows into policies that have lost an action, unless a share of the
    base stays in it.

    When not: the equilibrium is pure, as in Nim, which needs no KL; or the base model is far from the policy you want.

    Source: magnetic mirror descent, arXiv 2206.05825; R-NaD, arXiv 2206.15378.

    Args:
        logprobs: of the policy, (K, V).
        probs: their exponentials.
        reference: log-probabilities (K, V).

    Returns:
        KL(policy || reference) at each site, (K,).
    """
    return mx.sum(probs * (logprobs - reference), axis=-1)


def entropy(logprobs: mx.array, probs: mx.array) -> mx.array:
    r"""A bonus for undecided policies: the entropy of the next token over the whole vocabulary, in nats.

    $$L \leftarrow L - \alpha H \qquad H = -\sum_v p(v) \log p(v)$$

    When: the policy becomes deterministic too early, as the metric `entropy` and the collapse monitor show.

    When not: a KL to the base model is on, which already pulls towards an undecided policy. Over a whole vocabulary the
    bonus also rewards tokens that form no legal action, so restrict it there.

    Source: Williams and Peng 1991, "Function optimization using connectionist reinforcement learning algorithms",
    Connection Science 3(3).

    Args:
        logprobs: (K, V).
        probs: their exponentials.

    Returns:
        (K,).
    """
    return -mx.sum(probs * logprobs, axis=-1)


def entropy_within(logprobs: mx.array, sets: Sequence[Sequence[int]]) -> mx.array:
    r"""With `entropy_over = "legal"`: over the tokens that begin or continue a legal action.

    $$H = -\sum_{v \in S} p_S(v) \log p_S(v) \qquad p_S(v) = p(v)\,/\sum_{u \in S} p(u)$$

    Only the odds between the tokens of the set S matter, so the bonus moves no mass to any other token.

    Args:
        logprobs: (P, V).
        sets: P sets of token ids; an empty set has entropy 0.

    Returns:
        (P,).
    """
    if not any(map(len, sets)):
        return mx.zeros((len(sets),), dtype=logprobs.dtype)
    return entropy(*distribution(_within(logprobs, sets)))


def legality(logprobs: mx.array, sets: Sequence[Sequence[int]]) -> mx.array:
    r"""A penalty for answers that are not legal actions, at every token of an answer whose legal forms are listed.

    $$L \leftarrow L - c \sum_t \log \sum_{v \in S_t} p_t(v)$$

    $S_t$ are the tokens that begin or continue a legal action, the end of the turn included, after those sampled so
    far; c is `legality`. By the chain rule the sum over an answer's tokens is the cost of leaving the legal actions
    anywhere along it. Only the mass outside S is pushed, however small it is; the odds within S, which decide the play,
    stay as they are. Other ways of writing an action, such as a word before its bracket, count as outside.

    When: the reference of the KL moves (`magnet_every`), so that nothing holds the policy to the base's format, and
    opponents learn to wait for rare illegal answers; or the policy is forgetting the format, as `illegal_rate` shows.

    When not: answers are free text, or come after a thought. It has no effect there, and the run prints a note.

    Source: a log barrier on the policy's mass outside of a set, as in invalid-action masking (arXiv 2006.14171), which
    sets that mass to 0 instead.

    Args:
        logprobs: (P, V).
        sets: P sets of token ids, none of them empty.

    Returns:
        Minus the logarithm of the mass within each set, (P,).
    """
    within = _within(logprobs, sets)
    return distribution(within)[0][:, 0] - within[:, 0]  # log p_S(v) - log p(v), the same for every v in S


def _within(logprobs: mx.array, sets: Sequence[Sequence[int]]) -> mx.array:
    """Log-probabilities (P, W) of the tokens of each set, the widest of which has W > 0; `OUT` beyond a set's end.

    Of an empty set one token remains.
    """
    width = max(map(len, sets))
    ids, there = np.zeros((len(sets), width), dtype=np.int32), np.zeros((len(sets), width), dtype=bool)
    for place, chosen in enumerate(sets):
        ids[place, : len(chosen)], there[place, : len(chosen)] = chosen, True
    there[:, 0] |= ~there.any(axis=1)
    picked = mx.take_along_axis(logprobs, mx.array(ids), axis=1)
    return mx.where(mx.array(there), picked, mx.array(OUT, dtype=picked.dtype))


def entropy_top(logprobs: mx.array, count: int) -> mx.array:
    r"""With `entropy_over = "top"`: over the `entropy_top` likeliest tokens, renormalised in the same way.

    Args:
        logprobs: (K, V).
        count: how many tokens.

    Returns:
        (K,).
    """
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
    pairs, share = _pairs(position, legal, weights)
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


def illegality(
    logprobs: mx.array,
    position: NDArray[np.int32],
    legal: NDArray[np.int32],
    sets: Sequence[Sequence[int]],
    weights: Sequence[NDArray],
) -> list[mx.array]:
    """Sums over tokens of weight times `legality`, one sum for each of several `weights` (M,).

    Tokens that could be anything (-1), or that come when no legal action can be completed any more, count for nothing.
    The other arguments are those of `bonus`.
    """
    bound = np.array([bool(chosen) for chosen in sets] + [False])[legal]  # -1 is the last of them
    if not bound.any():
        return [mx.array(0.0, dtype=logprobs.dtype) for _ in weights]
    shares = [_pairs(position[bound], legal[bound], each[bound]) for each in weights]
    pairs = shares[0][0]
    values = legality(logprobs[mx.array(pairs[0])], [sets[number] for number in pairs[1]])
    return [mx.sum(mx.array(share.astype(np.float32)) * values) for _, share in shares]


def _pairs(
    position: NDArray[np.int32], legal: NDArray[np.int32], weights: NDArray
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The distinct pairs of site and set (2, P), and what the tokens of each weigh together (P,)."""
    pairs, inverse = np.unique(np.stack([position, legal]), axis=1, return_inverse=True)
    return pairs, np.bincount(inverse.reshape(-1), weights, pairs.shape[1]).astype(np.float64)
