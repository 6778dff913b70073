"""Which loss, and the weights of its parts."""

from __future__ import annotations

from dataclasses import dataclass

LOSSES = ("importance_sampling", "ppo", "cispo", "gspo", "sft")
CHOICES = {
    "loss": LOSSES,
    "aggregation": ("token", "sequence", "constant"),
    "kl": ("exact", "k3"),
    "entropy_over": ("all", "legal", "top"),
}


@dataclass(frozen=True, slots=True)
class LossSettings:
    """`aggregation` and `constant` as in `Batch.token_weights`. Raises ValueError for values out of range.

    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
    kl_weight, entropy_weight: in nats of loss per nat.
    kl: `"exact"` or `"k3"`.
    entropy_over: the bonus is the entropy of the whole distribution (`"all"`), of the tokens that begin or continue a
        legal action (`"legal"`, see `Batch.legal`) or of the `entropy_top` likeliest tokens (`"top"`), renormalised.
    truncate_ratio: samples from other weights or another engine are corrected by the weight
        `min(exp(start - old), truncate_ratio)`, and the loss's own ratio is measured from `start`.
    mask_ratio: turns whose geometric mean of `exp(start - old)` lies outside [low, high] are left out of the loss. What
        the others weigh stays as it was, so that a batch with one turn left does not take a full step on it.
    mask_truncated, skip_forced: for `batch.pack`, which is where such tokens are left out.
    """

    loss: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregation: str = "token"
    constant: float = 1.0
    kl_weight: float = 0.0
    kl: str = "exact"
    entropy_weight: float = 0.0
    entropy_over: str = "all"
    entropy_top: int = 16
    truncate_ratio: float | None = None
    mask_ratio: tuple[float, float] | None = None
    mask_truncated: bool = False
    skip_forced: float = 0.0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
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
        if not self.entropy_weight >= 0.0:
            raise ValueError(f"entropy_weight must be at least 0, got {self.entropy_weight}")
        if self.entropy_top < 2:
            raise ValueError(f"entropy_top must be at least 2, one token has no entropy; got {self.entropy_top}")
        if self.truncate_ratio is not None and not self.truncate_ratio > 0.0:
            raise ValueError(f"truncate_ratio must be positive or None, got {self.truncate_ratio}")
        if self.mask_ratio is not None and not 0.0 <= self.mask_ratio[0] <= 1.0 <= self.mask_ratio[1]:
            raise ValueError(f"mask_ratio must be (low, high) with 0 <= low <= 1 <= high, got {self.mask_ratio}")
        if not 0.0 <= self.skip_forced < 1.0:
            raise ValueError(f"skip_forced must be at least 0 and below 1, got {self.skip_forced}")
        if self.loss == "sft" and self.needs_start:
            name = "mask_ratio" if self.truncate_ratio is None else "truncate_ratio"
            raise ValueError(f"{name} corrects for who sampled the tokens, which loss='sft' does not ask; use None")

    @property
    def needs_start(self) -> bool:
        """Whether the loss compares the policy at the start of the optimiser step with the sampler."""
        return self.truncate_ratio is not None or self.mask_ratio is not None
