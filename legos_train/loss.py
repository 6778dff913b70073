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
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

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


def log_softmax(logits: mx.array) -> mx.array:
    """(..., V) -> log-probabilities (..., V), with one exponential per element in forward and backward together.

    `mx.logsumexp` exponentiates once more in its gradient, and on the CPU exponentials cost more than all else here.
    """
    shifted = logits - mx.stop_gradient(mx.max(logits, axis=-1, keepdims=True))
    return shifted - mx.log(mx.sum(mx.exp(shifted), axis=-1, keepdims=True))


def token_logprobs(logprobs: mx.array, position: mx.array, target: mx.array) -> mx.array:
    """Pick from log-probabilities (K, V) those of token `target` (M,) at site `position` (M,) -> (M,)."""
    return logprobs[position, target]


def importance_sampling(new: mx.array, old: mx.array, advantages: mx.array) -> mx.array:
    """`-r A`, all (M,)."""
    return -mx.exp(new - old) * advantages


def ppo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    """`-min(r A, clip(r) A)`, all (M,): no gradient from tokens already moved far enough in the wanted direction."""
    return _clipped(mx.exp(new - old), advantages, clip_low, clip_high)


def cispo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    """`-stop_gradient(clip(r)) A new`, all (M,): clipped tokens keep a bounded gradient instead of none."""
    ratio = mx.clip(mx.exp(new - old), 1.0 - clip_low, 1.0 + clip_high)
    return -mx.stop_gradient(ratio) * advantages * new


def gspo(
    new: mx.array,
    old: mx.array,
    advantages: mx.array,
    sequence: mx.array,
    sequence_length: mx.array,
    clip_low: float,
    clip_high: float,
) -> mx.array:
    """ppo with the turn's ratio `exp(mean over its tokens of (new - old))`. `sequence` (M,) ids are at least 0."""
    sums = mx.zeros((int(mx.max(sequence).item()) + 1,), dtype=new.dtype).at[sequence].add(new - old)
    return _clipped(mx.exp(sums[sequence] / sequence_length), advantages, clip_low, clip_high)


def _clipped(ratio: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    return -mx.minimum(ratio * advantages, mx.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)


def kl_k3(new: mx.array, reference: mx.array) -> mx.array:
    """`exp(ref - new) - (ref - new) - 1`, never negative; its mean over samples of the policy is KL(policy || ref)."""
    gap = reference - new
    return mx.exp(gap) - gap - 1.0


def kl_exact(logprobs: mx.array, reference: mx.array) -> mx.array:
    """KL(policy || reference) of two log-probability arrays (K, V) -> (K,)."""
    return mx.sum(mx.exp(logprobs) * (logprobs - reference), axis=-1)


def entropy(logprobs: mx.array) -> mx.array:
    """Entropy in nats of log-probabilities (K, V) -> (K,)."""
    return -mx.sum(mx.exp(logprobs) * logprobs, axis=-1)


def objective(
    logits: mx.array, batch: Batch, settings: LossSettings, reference: mx.array | None = None
) -> tuple[mx.array, dict[str, mx.array]]:
    """The loss of a batch (a scalar) from logits (K, V) at its sites, and what `metrics` is computed from.

    `reference`: log-probabilities of the reference policy, (K, V) at the sites, or (M,) at the sampled tokens, which is
    enough for `kl="k3"`. Raises ValueError when the settings need a reference of another shape.
    """
    logprobs = log_softmax(logits.astype(mx.float32) if logits.dtype != mx.float64 else logits)
    position, target = mx.array(batch.position), mx.array(batch.target)
    old, advantages = mx.array(batch.old_logprobs), mx.array(batch.advantages)
    weights = mx.array(batch.token_weights(settings.aggregation, settings.constant))
    new = token_logprobs(logprobs, position, target)
    clip = (settings.clip_low, settings.clip_high)
    if settings.loss == "ppo":
        per_token = ppo(new, old, advantages, *clip)
    elif settings.loss == "cispo":
        per_token = cispo(new, old, advantages, *clip)
    elif settings.loss == "gspo":
        lengths = mx.array(batch.sequence_length)
        per_token = gspo(new, old, advantages, mx.array(batch.sequence), lengths, *clip)
    else:
        per_token = importance_sampling(new, old, advantages)
    loss = mx.sum(weights * per_token)
    seen: dict[str, mx.array] = {"new": new}
    if settings.kl_weight and reference is None:
        raise ValueError(f"kl_weight is {settings.kl_weight} but there is no reference to measure the KL from")
    # The weight of a site is the summed weight of the tokens sampled there, so penalties per site stay exact.
    site_weights = mx.array(
        np.bincount(batch.position, weights=np.array(weights), minlength=len(batch.rows)).astype(np.float32)
    )
    if reference is not None:
        seen["kl"] = _penalty(logprobs, new, weights, site_weights, target, position, settings, reference)
        loss = loss + settings.kl_weight * seen["kl"]
    # Without a bonus the entropy is only a number for the log: no gradient, and nothing kept for one.
    measured = entropy(logprobs if settings.entropy_weight else mx.stop_gradient(logprobs))
    seen["entropy"] = mx.sum(site_weights * measured)
    if settings.entropy_weight:
        loss = loss - settings.entropy_weight * seen["entropy"]
    return loss, seen


def _penalty(
    logprobs: mx.array,
    new: mx.array,
    weights: mx.array,
    site_weights: mx.array,
    target: mx.array,
    position: mx.array,
    settings: LossSettings,
    reference: mx.array,
) -> mx.array:
    if settings.kl == "exact":
        if reference.shape != logprobs.shape:
            raise ValueError(
                f"the exact KL needs reference log-probabilities of shape {logprobs.shape}, got {reference.shape}; "
                "use kl='k3' with a reference that keeps sampled tokens only"
            )
        return mx.sum(site_weights * kl_exact(logprobs, reference))
    chosen = token_logprobs(reference, position, target) if reference.ndim == 2 else reference
    return mx.sum(weights * kl_k3(new, chosen))


def metrics(
    new: NDArray[np.float32], batch: Batch, settings: LossSettings, policy_version: int | None = None
) -> dict[str, float]:
    """What to log about a batch given the policy's log-probabilities `new` (M,) of its sampled tokens.

    `clip_fraction`: share of tokens whose loss ppo's clip made constant. `kl_old_new`: k3 estimate of KL(old || new).
    `effective_sample_size`: `(sum r)^2 / (M sum r^2)`, 1 on policy. `mismatch_mean`, `mismatch_max`: |new - old| over
    tokens sampled by `policy_version` itself, where the trainer and the sampler should agree; all tokens if None.
    `staleness_max`, `staleness_mean` in versions. Empty for an empty batch.
    """
    if not len(batch):
        return {}
    gap = new.astype(np.float64) - batch.old_logprobs
    with np.errstate(over="ignore", invalid="ignore"):  # a ratio may overflow; the caller sees it as inf or nan
        ratio = np.exp(gap)
        out = {
            "ratio_min": ratio.min(),
            "ratio_max": ratio.max(),
            "clip_fraction": np.where(
                batch.advantages > 0, ratio > 1 + settings.clip_high, (ratio < 1 - settings.clip_low)
            )[batch.advantages != 0].sum()
            / len(batch),
            "kl_old_new": (ratio - 1 - gap).mean(),
            "effective_sample_size": ratio.sum() ** 2 / (len(batch) * (ratio**2).sum()),
            "advantage_mean": batch.advantages.mean(dtype=np.float64),
            "advantage_abs_mean": np.abs(batch.advantages).mean(dtype=np.float64),
        }
    current = np.ones(len(batch), dtype=bool) if policy_version is None else batch.version == policy_version
    if current.any():
        out["mismatch_mean"], out["mismatch_max"] = np.abs(gap[current]).mean(), np.abs(gap[current]).max()
    known = batch.version >= 0
    if policy_version is not None and known.any():
        staleness = policy_version - batch.version[known]
        out["staleness_mean"], out["staleness_max"] = staleness.mean(), staleness.max()
    return {name: float(value) for name, value in out.items()}


def gather_reference(reference: Any, batch: Batch) -> mx.array:
    """Reference log-probabilities of the sampled tokens (M,) from either form accepted by `objective`."""
    array = mx.array(reference)
    return token_logprobs(array, mx.array(batch.position), mx.array(batch.target)) if array.ndim == 2 else array
