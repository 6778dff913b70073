"""The choice of loss, and the weights of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from legos_train.loss.token_loss import TokenLoss
from legos_train.loss.tokens import LOSSES
from legos_train.settings import Section, merged_options, settings_with

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(LOSSES)]

OPTIONS = merged_options("loss", {name: row.options for name, row in LOSSES.items()})


class LossChoice(Section):
    """The objective at every sampled token."""

    name: LossName = "ppo"
    """The loss; the docs have a page for each."""
    aggregation: Literal["token", "sequence", "constant"] = "sequence"
    """What the sum over tokens is divided by. `token`: the number of tokens; `sequence`: the tokens of each turn, then
    the number of turns; `constant`: the number of turns times `constant`."""
    constant: float = Field(default=1.0, gt=0)
    """`aggregation = "constant"`: the divisor of the sum over a turn's tokens."""
    truncate_ratio: float | None = Field(default=None, gt=0)
    """Truncated importance sampling, a correction for stale samples: each token is weighted by exp(logp at the start of
    the step - logp of the sampler), cut off at this value. None: no correction beyond the loss's own ratio."""
    mask_ratio: tuple[float, float] | None = None
    """Sequence mask (IcePop's rule on turns): leave out turns whose geometric mean ratio is outside this range."""
    mask_truncated: bool = False
    """Leave out actions cut off by the token limit."""
    skip_forced: float = Field(default=0.0, ge=0, lt=1)
    """At the end of an action, leave out tokens to which the sampler gave a probability above 1 minus this."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    entropy_over: Literal["all", "legal", "top"] = "all"
    """Entropy over the whole vocabulary, over the tokens that begin or continue a legal action, or over the
    `entropy_top` likeliest tokens, renormalised."""
    entropy_top: int = Field(default=16, ge=2)
    """`entropy_over = "top"`: how many tokens the bonus covers."""
    legality: float = Field(default=0.0, ge=0)
    """Weight of the negative log of the probability mass on legal actions, where an env lists them and nothing is
    written before them. It keeps answers well-formed when the KL does not, as with a moving reference."""
    kl: float = Field(default=0.2, ge=0)
    """Weight of the KL divergence from the reference, at the first step."""
    kl_end: float | None = Field(default=0.05, ge=0)
    """The weight at the last step; none: the same as `kl`."""
    kl_schedule: Literal["geometric", "linear"] = "geometric"
    """How the weight changes from `kl` to `kl_end`."""
    kl_estimator: Literal["auto", "exact", "k3"] = "auto"
    """`exact`: KL over the whole vocabulary at every visited token; `k3`: an estimate from the sampled token; auto: by
    vocabulary size."""
    magnet_every: int = Field(default=0, ge=0)
    """Steps between updates of the reference (a moving magnet), which then becomes what `magnet` names; 0: the
    reference is always the base model."""
    magnet: Literal["policy", "average"] = "policy"
    """With `magnet_every`: whether the reference becomes the current policy or its weight average (`average.kind`; the
    policy if there is none), which has less noise from sampled games."""
    magnet_base: float = Field(default=0.0, ge=0, lt=1)
    """With `magnet_every`: the share of the base model in the reference, at every token. There, actions that the policy
    now avoids keep that share of their initial probability, so that none is lost for good."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mask_ratio is not None and not 0.0 <= self.mask_ratio[0] <= 1.0 <= self.mask_ratio[1]:
            raise ValueError(f"mask_ratio must be (low, high) with 0 <= low <= 1 <= high, got {self.mask_ratio}")
        for field in ("magnet", "magnet_base"):
            if (value := getattr(self, field)) != type(self).model_fields[field].default and not self.magnet_every:
                raise ValueError(f"{field} = {value!r} does nothing while magnet_every is 0; give it a number of steps")
        for name, option in OPTIONS.items():
            over_all = all(LOSSES[one].all_actions for one in option.methods)
            if over_all and name in self.unused and getattr(self, name) != option.default:
                losses = f"loss{'es' * (len(option.methods) > 1)} {' and '.join(map(repr, option.methods))}"
                said = f"{name} is a setting of the {losses} and does nothing for {self.name!r}"
                raise ValueError(f"{said}, got {getattr(self, name)!r}")
        if (self.token_loss.imitates or self.token_loss.mirror) and self.needs_start:
            name = "mask_ratio" if self.truncate_ratio is None else "truncate_ratio"
            raise ValueError(f"{name} is an off-policy correction, which {self.name!r} does not need; use none")
        return self

    @property
    def needs_start(self) -> bool:
        """Whether the loss compares the policy at the start of the optimiser step with the sampler."""
        return self.truncate_ratio is not None or self.mask_ratio is not None

    @property
    def token_loss(self) -> TokenLoss:
        """The row of `LOSSES` that `name` names."""
        return LOSSES[self.name]

    @property
    def options(self) -> dict[str, Any]:
        """The options of this loss, with their values."""
        return {name: getattr(self, name) for name in self.token_loss.options}

    @property
    def unused(self) -> tuple[str, ...]:
        """The options that only other losses have."""
        return tuple(name for name in OPTIONS if name not in self.token_loss.options)

    def kl_weight(self, step: int, steps: int) -> float:
        """The weight of the KL at step 1 ... `steps`: from `kl` to `kl_end`, linearly where one of them is zero."""
        if self.kl_end is None:
            return self.kl
        done = (step - 1) / max(steps - 1, 1)
        if self.kl_schedule == "geometric" and self.kl and self.kl_end:
            return float(self.kl * (self.kl_end / self.kl) ** done)
        return self.kl + (self.kl_end - self.kl) * done

    def fixed(self, kl: float, *, exact: bool) -> Self:
        """The settings of a single step: its KL weight, and the estimator that `auto` stands for, given `exact`."""
        estimator = ("exact" if exact else "k3") if self.kl_estimator == "auto" else self.kl_estimator
        return self.model_copy(update={"kl": kl, "kl_end": None, "kl_estimator": estimator})


if TYPE_CHECKING:

    class LossSettings(LossChoice):
        """`LossChoice`, and a setting for each option of a loss."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, option: str) -> Any: ...

else:
    LossSettings = settings_with(LossChoice, "LossSettings", OPTIONS)
