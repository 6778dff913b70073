"""Which loss, and the weights of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from legos_train.loss.tokens import LOSSES, TokenLoss
from legos_train.settings import Section

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(LOSSES)]


class LossSettings(Section):
    """The objective at every sampled token."""

    name: LossName = "ppo"
    """`sft`: the log-likelihood of the actions of episodes that pass `filter` (training on survivors)."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """`ppo`, `gspo`, `cispo`: the probability ratio is clipped at 1 minus this."""
    clip_high: float = Field(default=0.2, gt=0)
    """The same at 1 plus this."""
    aggregation: Literal["token", "sequence", "constant"] = "sequence"
    """What the sum over tokens is divided by: tokens; tokens of each turn, then turns; or turns times `constant`."""
    constant: float = Field(default=1.0, gt=0)
    """`aggregation = "constant"`: divides the sum over a turn's tokens."""
    truncate_ratio: float | None = Field(default=None, gt=0)
    """Truncated importance sampling: the weight exp(logp at the start of the step - logp of the sampler) of a token,
    cut off at this value, corrects for stale samples. None: no correction beyond the loss's own ratio."""
    mask_ratio: tuple[float, float] | None = None
    """Sequence mask (IcePop's rule on whole turns): turns whose geometric mean ratio lies outside are left out."""
    mask_truncated: bool = False
    """Leave out actions cut off by the token limit."""
    skip_forced: float = Field(default=0.0, ge=0, lt=1)
    """Leave out the tokens at the end of an action that the sampler gave a probability above 1 minus this."""
    explore: float = Field(default=0.0, ge=0, lt=1)
    """`expected`, `mirror`: decision points are weighted as if all players made a uniformly random move this often, so
    that points which play has come to avoid are still learned. The values of actions do not change."""
    mirror_step: float = Field(default=1.0, gt=0)
    """`mirror`: step size of mirror descent. The smaller the KL weight, the smaller it must be, or the policy
    circles."""
    mirror_floor: float = Field(default=0.0, ge=0, lt=0.5)
    """`mirror`: a step treats every legal action as at least this likely. So actions that have become rare come back
    when they are worth it; those that are rightly rare are played about this often."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    entropy_over: Literal["all", "legal", "top"] = "all"
    """Entropy over the whole vocabulary, over the tokens that begin or continue a legal action, or over the
    `entropy_top` likeliest tokens, renormalised."""
    entropy_top: int = Field(default=16, ge=2)
    """`entropy_over = "top"`: how many tokens the bonus covers."""
    legality: float = Field(default=0.0, ge=0)
    """Weight of the negative log of the probability mass on legal actions, where an env lists them and nothing is
    written before them. It keeps answers well-formed when the KL does not, as under a moving reference."""
    kl: float = Field(default=0.2, ge=0)
    """Weight of the KL divergence to the reference, at the first step."""
    kl_end: float | None = Field(default=0.05, ge=0)
    """The same at the last step; none keeps `kl`."""
    kl_schedule: Literal["geometric", "linear"] = "geometric"
    """How the weight goes from `kl` to `kl_end`."""
    kl_estimator: Literal["auto", "exact", "k3"] = "auto"
    """Whole-vocabulary KL at every visited token, or the k3 estimate from the sampled one; auto: by vocabulary size."""
    magnet_every: int = Field(default=0, ge=0)
    """Steps between updates of the reference to what `magnet` names (a moving magnet); 0: always the base model."""
    magnet: Literal["policy", "average"] = "policy"
    """`magnet_every`: the reference becomes the current policy, or its weight average (`average.kind`; the policy if
    there is none), which has less noise from sampled games."""
    magnet_base: float = Field(default=0.0, ge=0, lt=1)
    """`magnet_every`: the share of the base model in the reference, at every token. Actions that the policy has come to
    avoid keep that share of their first probability there, so that none is lost for good."""

    @model_validator(mode="after")
    def _consistent(self) -> LossSettings:
        if self.mask_ratio is not None and not 0.0 <= self.mask_ratio[0] <= 1.0 <= self.mask_ratio[1]:
            raise ValueError(f"mask_ratio must be (low, high) with 0 <= low <= 1 <= high, got {self.mask_ratio}")
        for field in ("magnet", "magnet_base"):
            if (value := getattr(self, field)) != type(self).model_fields[field].default and not self.magnet_every:
                raise ValueError(f"{field} = {value!r} does nothing while magnet_every is 0; give it a number of steps")
        if self.explore and not LOSSES[self.name].all_actions:
            names = " and ".join(repr(name) for name, one in LOSSES.items() if one.all_actions)
            raise ValueError(f"explore weighs the decision points of {names}, which {self.name!r} does not have")
        for field in ("mirror_step", "mirror_floor"):
            if getattr(self, field) != type(self).model_fields[field].default and not LOSSES[self.name].mirror:
                raise ValueError(f"{field} is a setting of the loss 'mirror' and does nothing for {self.name!r}")
        if (LOSSES[self.name].imitates or LOSSES[self.name].mirror) and self.needs_start:
            name = "mask_ratio" if self.truncate_ratio is None else "truncate_ratio"
            raise ValueError(f"{name} corrects for who sampled the tokens, which {self.name!r} does not ask; use none")
        return self

    @property
    def needs_start(self) -> bool:
        """Whether the loss compares the policy at the start of the optimiser step with the sampler."""
        return self.truncate_ratio is not None or self.mask_ratio is not None

    @property
    def token_loss(self) -> TokenLoss:
        """The row of `LOSSES` that `name` names."""
        return LOSSES[self.name]

    def kl_weight(self, step: int, steps: int) -> float:
        """The weight of the KL at step 1 ... `steps`: from `kl` to `kl_end`, linearly where one of them is zero."""
        if self.kl_end is None:
            return self.kl
        done = (step - 1) / max(steps - 1, 1)
        if self.kl_schedule == "geometric" and self.kl and self.kl_end:
            return float(self.kl * (self.kl_end / self.kl) ** done)
        return self.kl + (self.kl_end - self.kl) * done

    def fixed(self, kl: float, *, exact: bool) -> LossSettings:
        """The settings of a single step: the KL weight as it is then, and `exact` in place of the estimator `auto`."""
        estimator = ("exact" if exact else "k3") if self.kl_estimator == "auto" else self.kl_estimator
        return self.model_copy(update={"kl": kl, "kl_end": None, "kl_estimator": estimator})
