"""Policy-gradient losses as pure functions on arrays.

Shapes: K sites (distinct contexts), V vocabulary, M sampled tokens; see batch.py. All logarithms are natural, all
log-probabilities at temperature 1. `old` are the log-probabilities the sampler recorded, `new` those of the policy
being trained, `A` the advantages, and `r = exp(new - old)` the probability ratio of a token.

| name | loss of a token | source |
|---|---|---|
| `importance_sampling` | `-r A` | off-policy REINFORCE |
| `ppo` | `-min(r A, clip(r, 1 - low, 1 + high) A)` | arXiv 1707.06347; high > low: DAPO, arXiv 2503.14476 |
| `cispo` | `-stop_gradient(clip(r, 1 - low, 1 + high)) A new` | MiniMax-M1, arXiv 2506.13585 |
| `gspo` | ppo with one ratio per turn, the geometric mean of r over its tokens | arXiv 2507.18071 |

Penalties added to it, each weighted like the tokens themselves: KL to a reference policy, `"exact"` over the full
vocabulary at each context or `"k3"` from the sampled token alone (Schulman, "Approximating KL divergence", 2020), and
the negative entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference import fastmath

from .batch import Batch

LOSSES = ("importance_sampling", "ppo", "cispo", "gspo")


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Which loss, and the weights of its parts. `aggregation` and `constant` as in `Batch.token_weights`.

    `clip_low`, `clip_high`: the ratio is clipped to [1 - clip_low, 1 + clip_high]. `kl_weight`, `entropy_weight` in
    nats of loss per nat. `kl`: `"exact"` or `"k3"`. Raises ValueError for values out of range.
    """

    loss: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregation: str = "token"
    constant: float = 1.0
    kl_weight: float = 0.0
    kl: str = "exact"
    entropy_weight: float = 0.0

    def __post_init__(self) -> None:
        for name, choices in (
            ("loss", LOSSES),
            ("aggregation", ("token", "sequence", "constant")),
            ("kl", ("exact", "k3")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}")
        if not 0.0 <= self.clip_low <= 1.0 or not self.clip_high >= 0.0:
            raise ValueError(
                f"clip_low must be in [0, 1] and clip_high at least 0, got {self.clip_low} and {self.clip_high}"
            )
        if not self.constant > 0.0:
            raise ValueError(f"constant must be positive, got {self.constant}")
        if not self.kl_weight >= 0.0:
            raise ValueError(f"kl_weight must be at least 0, got {self.kl_weight}")


def distribution(logits: mx.array) -> tuple[mx.array, mx.array]:
    """(..., V) -> log-probabilities and probabilities (..., V), with one exponential per element, gradient included.

    Exponentials are what a small vocabulary costs on the CPU; see fastmath.py.
    """
    return fastmath.distribution(logits)


def token_logprobs(logprobs: mx.array, position: mx.array, target: mx.array) -> mx.array:
    """Pick from log-probabilities (K, V) those of token `target` (M,) at site `position` (M,) -> (M,)."""
    return logprobs[position, target]


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


def gspo(
    new: mx.array,
    old: mx.array,
    advantages: mx.array,
    sequence: NDArray[np.int32],
    *,
    clip_low: float,
    clip_high: float,
) -> mx.array:
    """ppo with one ratio a turn, `exp(mean over its tokens of (new - old))`; `sequence` (M,) says whose turn it is."""
    _, index, sizes = np.unique(sequence, return_inverse=True, return_counts=True)
    turn = mx.array(index)
    sums = mx.zeros((len(sizes),), dtype=new.dtype).at[turn].add(new - old)
    return _clipped(fastmath.exp((sums / mx.array(sizes).astype(new.dtype))[turn]), advantages, clip_low, clip_high)


def _clipped(ratio: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    return -mx.minimum(ratio * advantages, mx.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)


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


def objective(
    logits: mx.array, batch: Batch, settings: LossSettings, reference: mx.array | None = None
) -> tuple[mx.array, dict[str, mx.array]]:
    """The loss of a batch (a scalar) from logits (K, V) at its sites, and numbers to log.

    `reference`: log-probabilities of the reference policy, (K, V) at the sites, or (M,) at the sampled tokens, which is
    enough for `kl="k3"`. The dict has `new` (M,), the policy's log-probabilities, and `kl` and `entropy`, scalars that
    add up over the parts of `Batch.micro` to the mean over sampled tokens. Raises ValueError when the settings ask for
    a KL and the reference is missing or has another shape.
    """
    if settings.kl_weight and reference is None:
        raise ValueError(f"kl_weight is {settings.kl_weight} but there is no reference to measure the KL from")
    logprobs, probs = distribution(logits if logits.dtype == mx.float64 else logits.astype(mx.float32))
    position, target = mx.array(batch.position), mx.array(batch.target)
    weights = batch.token_weights(settings.aggregation, settings.constant)
    # A site weighs as much as the tokens sampled there together, so a penalty per site is the penalty per token.
    site_weights = mx.array(np.bincount(batch.position, weights, len(batch.rows)).astype(np.float32))
    site_share = mx.array((batch.site_counts / max(batch.total_tokens, 1)).astype(np.float32))

    new = token_logprobs(logprobs, position, target)
    loss = mx.sum(mx.array(weights) * _policy_loss(new, batch, settings))
    seen: dict[str, mx.array] = {"new": new}
    if reference is not None and settings.kl == "exact":
        if reference.shape != logprobs.shape:
            raise ValueError(
                f"the exact KL needs reference log-probabilities of shape {logprobs.shape}, got {reference.shape}; "
                "use kl='k3' with a reference that keeps only those of the sampled tokens"
            )
        per_site = kl_exact(logprobs, probs, reference)
        loss = loss + settings.kl_weight * mx.sum(site_weights * per_site)
        seen["kl"] = mx.sum(site_share * per_site)
    elif reference is not None:
        per_token = kl_k3(new, token_logprobs(reference, position, target) if reference.ndim == 2 else reference)
        loss = loss + settings.kl_weight * mx.sum(mx.array(weights) * per_token)
        seen["kl"] = mx.sum(per_token) / max(batch.total_tokens, 1)
    per_site = entropy(logprobs, probs)
    seen["entropy"] = mx.sum(site_share * per_site)
    if settings.entropy_weight:
        loss = loss - settings.entropy_weight * mx.sum(site_weights * per_site)
    return loss, seen


def _policy_loss(new: mx.array, batch: Batch, settings: LossSettings) -> mx.array:
    old, advantages = mx.array(batch.old_logprobs), mx.array(batch.advantages)
    low, high = settings.clip_low, settings.clip_high
    if settings.loss == "ppo":
        return ppo(new, old, advantages, low, high)
    if settings.loss == "cispo":
        return cispo(new, old, advantages, low, high)
    if settings.loss == "gspo":
        return gspo(new, old, advantages, batch.sequence, clip_low=low, clip_high=high)
    return importance_sampling(new, old, advantages)


def metrics(
    new: NDArray[np.float32], batch: Batch, settings: LossSettings, policy_version: int | None = None
) -> dict[str, float]:
    """What to log about a batch given the policy's log-probabilities `new` (M,) of its sampled tokens.

    `clip_fraction`: share of tokens without a gradient because ppo's clip holds them. `kl_old_new`: k3 estimate of
    KL(old || new). `effective_sample_size`: `(sum r)^2 / (M sum r^2)`, 1 on policy. `mismatch_mean`, `mismatch_max`:
    |new - old| over the tokens sampled by `policy_version` itself, where trainer and sampler should agree; over all
    tokens if None. `staleness_mean`, `staleness_max` in versions. Raises ValueError for an empty batch.
    """
    if not len(batch):
        raise ValueError("there are no sampled tokens to measure")
    advantages = batch.advantages.astype(np.float64)
    gap = new.astype(np.float64) - batch.old_logprobs
    with np.errstate(over="ignore", invalid="ignore"):  # a ratio may overflow: it is logged as inf or nan
        ratio = np.exp(gap)
        held = ((advantages > 0) & (ratio > 1 + settings.clip_high)) | (
            (advantages < 0) & (ratio < 1 - settings.clip_low)
        )
        out = {
            "ratio_min": ratio.min(),
            "ratio_max": ratio.max(),
            "clip_fraction": held.mean(),
            "kl_old_new": (ratio - 1 - gap).mean(),
            "effective_sample_size": ratio.sum() ** 2 / (len(batch) * (ratio**2).sum()),
            "advantage_mean": advantages.mean(),
            "advantage_abs_mean": np.abs(advantages).mean(),
        }
    current = np.ones(len(batch), dtype=bool) if policy_version is None else batch.version == policy_version
    if current.any():
        out["mismatch_mean"], out["mismatch_max"] = np.abs(gap[current]).mean(), np.abs(gap[current]).max()
    known = batch.version >= 0
    if policy_version is not None and known.any():
        staleness = policy_version - batch.version[known]
        out["staleness_mean"], out["staleness_max"] = staleness.mean(), staleness.max()
    return {name: float(value) for name, value in out.items()}
