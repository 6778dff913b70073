"""The loss of a batch: token losses, their weights, penalties."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from legos_train.loss.batch import Batch
from legos_train.loss.corrections import inside, truncated_weights, turn_means
from legos_train.loss.loss_settings import LossSettings
from legos_train.loss.penalties import (
    bonus,
    distribution,
    entropy,
    entropy_top,
    illegality,
    kl_exact,
    kl_k3,
    token_logprobs,
)
from legos_train.loss.site_states import SiteStates
from legos_train.loss.token_loss import Samples


def objective(
    logits: mx.array | SiteStates, batch: Batch, settings: LossSettings, reference: mx.array | None = None
) -> tuple[mx.array, dict[str, mx.array]]:
    """The loss of a batch (a scalar) from logits (K, V) at its sites, and numbers to log.

    Where the settings compare the start of the optimiser step with the sampler, a batch without `start_logprobs` means
    that this is the start.

    Args:
        logits: (K, V), or the states to compute them from, some sites at a time if there are many; all at once, if the
            settings need `start_logprobs` that the batch does not have.
        batch: the sampled tokens.
        settings: of a single step, see `LossSettings.fixed`.
        reference: log-probabilities of the reference policy, (K, V) at the sites, or (M,) at the sampled tokens, which
            suffices for `kl_estimator="k3"`.

    Returns:
        The loss, and a dict: `new` (M,), the policy's log-probabilities, and scalars that add up over the parts of
        `Batch.parts` to the mean over sampled tokens: `kl`, `entropy` of the whole distribution, and with a bonus
        `entropy_bonus`, over the tokens it covers. With `legality`, `illegal_mass` adds up to a mean over turns of
        minus the logarithm of the mass of legal actions, which is about the probability of an illegal answer where it
        is small.

    Raises:
        ValueError: the settings ask for a KL and the reference is missing or has another shape.
    """
    if settings.kl and reference is None:
        raise ValueError(f"kl is {settings.kl} but there is no reference to measure the KL from")
    if isinstance(logits, SiteStates) and (logits.fits or (settings.needs_start and batch.start_logprobs is None)):
        logits = logits.logits()
    shape = (len(batch.rows), logits.vocabulary if isinstance(logits, SiteStates) else logits.shape[-1])
    exact = reference if settings.kl_estimator == "exact" else None
    if exact is not None and exact.shape != shape:
        raise ValueError(
            f"the exact KL needs reference log-probabilities of shape {shape}, got {exact.shape}; "
            "use kl_estimator='k3' with a reference that keeps only those of the sampled tokens"
        )
    top = settings.entropy_top if settings.entropy and settings.entropy_over == "top" else None
    position, target = batch.position, batch.target

    def per_site(
        logprobs: mx.array, probs: mx.array, sites: slice = slice(0, None), tokens: Any = slice(None)
    ) -> list[mx.array]:
        at = mx.array(position[tokens] - sites.start), mx.array(target[tokens])
        kl = [] if exact is None else [kl_exact(logprobs, probs, exact[sites])]
        likeliest = [] if top is None else [entropy_top(logprobs, top)]
        return [token_logprobs(logprobs, *at), entropy(logprobs, probs), *kl, *likeliest]

    def of_legal(
        weights: NDArray[np.float32], logprobs: mx.array, probs: mx.array, first: int = 0, tokens: Any = slice(None)
    ) -> list[mx.array]:
        """Sums over tokens: of the entropy bonus, twice with different weights, and of illegality, likewise."""
        own, sums = (position[tokens] - first, batch.legal[tokens], batch.legal_sets), []
        if settings.entropy and settings.entropy_over == "legal":
            shares = batch.weight[tokens] / (batch.total_tokens or 1)
            sums += [bonus(logprobs, probs, *own, share) for share in (weights[tokens], shares)]
        if settings.legality:
            by_turn = batch.weight[tokens] / np.float32(batch.total_sequences or 1)
            sums += illegality(logprobs, *own, (weights[tokens], by_turn))
        return sums

    if isinstance(logits, SiteStates):
        _, _, weights = _weighted(None, batch, settings)

        def statistics(logprobs: mx.array, probs: mx.array, sites: slice, tokens: NDArray[np.int64]) -> list[mx.array]:
            sums = of_legal(weights, logprobs, probs, sites.start, tokens)
            return [*per_site(logprobs, probs, sites, tokens), *sums]

        chunks = list(logits.measured(batch, statistics))
        columns = [list(column) for column in zip(*(arrays for _, arrays in chunks), strict=True)]
        new, undecided, *more = (mx.concatenate(c) if c[0].ndim else sum(c[1:], c[0]) for c in columns)
        new = new[mx.array(np.argsort(np.concatenate([tokens for tokens, _ in chunks])))]
        loss, weights = policy_objective(new, batch, settings)
    else:
        logprobs, probs = distribution(logits if logits.dtype == mx.float64 else logits.astype(mx.float32))
        new, undecided, *more = per_site(logprobs, probs)
        loss, weights = policy_objective(new, batch, settings)
        more += of_legal(weights, logprobs, probs)
    # A site weighs as much as the tokens sampled there together, so a penalty per site is the penalty per token.
    site_weights = mx.array(np.bincount(position, weights, len(batch.rows)).astype(np.float32))
    site_share = mx.array((batch.site_weights / (batch.total_tokens or 1)).astype(np.float32))

    seen: dict[str, mx.array] = {"new": new}
    left = iter(more)
    if exact is not None:
        kl = next(left)
        loss = loss + settings.kl * mx.sum(site_weights * kl)
        seen["kl"] = mx.sum(site_share * kl)
    elif reference is not None:
        known = token_logprobs(reference, mx.array(position), mx.array(target)) if reference.ndim == 2 else reference
        per_token = kl_k3(new, known)
        loss = loss + settings.kl * mx.sum(mx.array(weights) * per_token)
        seen["kl"] = mx.sum(mx.array(batch.weight) * per_token) / (batch.total_tokens or 1)
    seen["entropy"] = mx.sum(site_share * undecided)
    if settings.entropy and settings.entropy_over == "legal":
        loss = loss - settings.entropy * next(left)
        seen["entropy_bonus"] = next(left)
    elif settings.entropy:
        spread = undecided if top is None else next(left)
        loss = loss - settings.entropy * mx.sum(site_weights * spread)
        seen["entropy_bonus"] = mx.sum(site_share * spread)
    if settings.legality:
        loss = loss + settings.legality * next(left)
        seen["illegal_mass"] = next(left)
    return loss, seen


def policy_objective(new: mx.array, batch: Batch, settings: LossSettings) -> tuple[mx.array, NDArray[np.float32]]:
    """The loss without penalties (a scalar) from log-probabilities of sampled tokens (M,), and their weights (M,)."""
    gap, stays, weights = _weighted(new, batch, settings)
    return mx.sum(mx.array(weights) * _policy_loss(new, gap, stays, batch, settings)), weights


def _weighted(
    new: mx.array | None, batch: Batch, settings: LossSettings
) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
    """`start_gap`, `turn_mask` and the weights of the tokens, (M,) each."""
    gap = start_gap(new, batch, settings)
    stays = turn_mask(gap, batch, settings)
    return gap, stays, batch.token_weights(settings.aggregation, settings.constant) * stays


def start_gap(new: mx.array | NDArray | None, batch: Batch, settings: LossSettings) -> NDArray[np.float64]:
    """`start - old` (M,) of each token; zeros where the settings do not ask for it."""
    if not settings.needs_start:
        return np.zeros(len(batch))
    start = np.array(new) if batch.start_logprobs is None else batch.start_logprobs
    return start.astype(np.float64) - batch.old_logprobs


def turn_mask(gap: NDArray[np.float64], batch: Batch, settings: LossSettings) -> NDArray[np.float32]:
    """1 for the tokens of turns that stay in the loss, 0 for those that `mask_ratio` leaves out, (M,)."""
    if settings.mask_ratio is None:
        return np.ones(len(batch), dtype=np.float32)
    return inside(turn_means(gap, batch.sequence, batch.sequence_length), *settings.mask_ratio).astype(np.float32)


def correction(gap: NDArray[np.float64], batch: Batch, settings: LossSettings) -> NDArray[np.float64]:
    """Truncated importance weights (M,): one per token, with gspo one per turn, like its ratio; ones if off."""
    if settings.truncate_ratio is None:
        return np.ones(len(batch))
    if settings.token_loss.by_turn:
        gap = turn_means(gap, batch.sequence, batch.sequence_length)
    return truncated_weights(gap, settings.truncate_ratio)


def _policy_loss(
    new: mx.array, gap: NDArray[np.float64], stays: NDArray[np.float32], batch: Batch, settings: LossSettings
) -> mx.array:
    old, advantages = mx.array(batch.old_logprobs), mx.array(batch.advantages)
    if settings.truncate_ratio is not None:  # the losses are linear in the advantage, with weights above 0
        old = mx.stop_gradient(new) if batch.start_logprobs is None else mx.array(batch.start_logprobs)
        advantages = mx.array((batch.advantages * correction(gap, batch, settings)).astype(np.float32))
    if not stays.all():  # a ratio that overflows would not be finite even with weight 0
        old = mx.where(mx.array(stays > 0), old, mx.stop_gradient(new))
    samples = Samples(new, old, advantages, batch.sequence, batch.sequence_length)
    return settings.token_loss(samples, **settings.options)
