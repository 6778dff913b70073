"""Metrics of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from legos_train.loss.batch import Batch
from legos_train.loss.batch_loss import correction, start_gap, turn_mask
from legos_train.loss.corrections import turn_means
from legos_train.loss.loss_settings import LossSettings


def metrics(
    new: NDArray[np.float32], batch: Batch, settings: LossSettings, policy_version: int | None = None
) -> dict[str, Any]:
    """Numbers about a batch given the policy's log-probabilities `new` (M,) of its sampled tokens.

    The loss's own ratio, per token (with gspo per turn), measured from `start` where the ratio is truncated:
        `ratio_min`, `ratio_max`; `clip_fraction`: share of tokens whose ratio the clip holds (ppo, gspo: no gradient;
        cispo: a bounded one).
    New policy against sampler: `kl_old_new`, the k3 estimate of KL(old || new); `effective_sample_size`,
        `(sum r)^2 / (M sum r^2)`, 1 on policy.
    `mismatch_mean`, `mismatch_max`: |new - old| over the tokens sampled by `policy_version` itself, where trainer and
        sampler should agree; over all tokens if None; left out when there is no such token.
    `staleness`: versions between sampling and training -> tokens, with `"unknown"` for tokens without a version;
        `staleness_mean`, `staleness_max`. Only with `policy_version`.
    `masked_share`: share of the turns that `mask_ratio` leaves out. `truncated_share`: share of the tokens whose weight
        was cut off at `truncate_ratio`. `live_share`: share of the tokens whose policy loss has a gradient at all: not
        masked, not held by a clip, advantage not 0.

    Raises ValueError for an empty batch.
    """
    if not len(batch):
        raise ValueError("there are no sampled tokens to measure")
    advantages = batch.advantages.astype(np.float64)
    gap = new.astype(np.float64) - batch.old_logprobs
    off = start_gap(new, batch, settings)
    own = gap - off if settings.truncate_ratio is not None else gap
    if settings.token_loss.by_turn:
        own = turn_means(own, batch.sequence, batch.sequence_length)
    stays = turn_mask(off, batch, settings) > 0
    with np.errstate(over="ignore", invalid="ignore"):  # a ratio may overflow: it is logged as inf or nan
        ratio, sampled = np.exp(own), np.exp(gap)
        held = _held(ratio, advantages, settings)
        learns = stays if settings.token_loss.imitates else stays & (advantages != 0.0)
        out = {
            "ratio_min": ratio.min(),
            "ratio_max": ratio.max(),
            "clip_fraction": held.mean(),
            "kl_old_new": (sampled - 1 - gap).mean(),
            "effective_sample_size": sampled.sum() ** 2 / (len(batch) * (sampled**2).sum()),
            "advantage_mean": advantages.mean(),
            "advantage_abs_mean": np.abs(advantages).mean(),
            "live_share": (learns & ~held if settings.token_loss.holds == "pushed" else learns).mean(),
        }
    if settings.mask_ratio is not None:
        turns = len(np.unique(batch.sequence))
        out["masked_share"] = len(np.unique(batch.sequence[~stays])) / turns
    if settings.truncate_ratio is not None:
        out["truncated_share"] = (correction(off, batch, settings) >= settings.truncate_ratio).mean()
    current = np.ones(len(batch), dtype=bool) if policy_version is None else batch.version == policy_version
    if current.any():
        out["mismatch_mean"], out["mismatch_max"] = np.abs(gap[current]).mean(), np.abs(gap[current]).max()
    numbers: dict[str, Any] = {name: float(value) for name, value in out.items()}
    if policy_version is not None:
        numbers |= _staleness(batch.version, policy_version)
    return numbers


def _held(ratio: NDArray, advantages: NDArray, settings: LossSettings) -> NDArray[np.bool_]:
    """Where a clip acts, (M,)."""
    above, below = ratio > 1 + settings.clip_high, ratio < 1 - settings.clip_low
    if settings.token_loss.holds == "pushed":
        return ((advantages > 0) & above) | ((advantages < 0) & below)
    return above | below if settings.token_loss.holds == "outside" else np.zeros(len(ratio), dtype=bool)


def _staleness(version: NDArray[np.int32], policy_version: int) -> dict[str, Any]:
    known = version >= 0
    ages, counts = np.unique(policy_version - version[known], return_counts=True)
    histogram = {str(age): int(count) for age, count in zip(ages.tolist(), counts.tolist(), strict=True)}
    if not known.all():
        histogram["unknown"] = int((~known).sum())
    out: dict[str, Any] = {"staleness": histogram}
    if known.any():
        out["staleness_mean"] = float((ages * counts).sum() / counts.sum())
        out["staleness_max"] = float(ages.max())
    return out
