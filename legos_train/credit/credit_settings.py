"""The choice of credit method, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from legos_train.credit.assigner import DECAY, GAMMA, SINGLETON, CreditAssigner
from legos_train.credit.methods import METHODS, make_credit, options_of
from legos_train.credit.return_scale import ReturnScale
from legos_train.settings import Section

if TYPE_CHECKING:
    CreditName = str
else:
    CreditName = Literal[tuple(sorted(METHODS))]


class CreditSettings(Section):
    """Who gets credit for an outcome."""

    name: CreditName = "same_prompt"
    """The credit method; the docs have a page for each."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Methods for individual roles, instead of `name`: a table `[credit.roles]` with lines like `proposer = "rae"`."""
    decay: float = Field(default=DECAY, ge=0, lt=1)
    """Decay of RAE's moving baseline."""
    bias_correction: bool = True
    """`rae`: divide the moving baseline by 1 - decay^n; off, it creeps up from 0, as in the paper."""
    baseline_update: Literal["batch", "game", "game_first"] = "batch"
    """`rae`: when the baseline is updated: after the batch (`batch`), after every game (`game`, the authors' code), or
    with a game's own return before comparing the two (`game_first`, the paper)."""
    gamma: float = Field(default=GAMMA, gt=0, le=1)
    """Discount factor per turn, counted from the end of the episode."""
    pseudo_count: float = Field(default=2.0, ge=0)
    """`same_prompt`: how many games the role's RAE baseline counts as."""
    std: bool = False
    """`grpo`, `hierarchical_grpo`, `agent_turn`, `gigpo`: divide by the group's standard deviation."""
    per_role: bool = True
    """`grpo`: compare within a role; off: all trained seats of the group together (a joint mean)."""
    singleton: Literal["zero", "rae"] = SINGLETON
    """Group credit: the advantage of an agent without peers is 0, or what `rae` would give it."""
    peers: Literal["table", "role"] = "table"
    """`hierarchical_grpo`: compare agents with the same role at one table (`table`), or also at neighbouring tables
    (`role`). Tournaments need `role`: a seat of a match may be the only one with its role."""
    root_peers: Literal["group", "batch"] = "group"
    """`hierarchical_grpo`: what agents outside any table are compared with: the episode's group, or the whole batch."""
    step_weight: float = Field(default=1.0, ge=0)
    """`gigpo`: weight of the step advantage relative to the episode's."""
    return_scale: Literal["running", "none"] = "running"
    """Divide advantages by the running standard deviation of the returns of their environment and role, where that is
    above 1. Methods whose advantages do not grow with the returns are left alone."""

    @property
    def names(self) -> set[str]:
        """The methods of all roles."""
        return {self.name, *self.roles.values()}

    def options(self, name: str | None = None) -> dict[str, Any]:
        """The settings that the method `name` (by default `self.name`) takes; ValueError for an unknown name."""
        return {option: getattr(self, option) for option in options_of(name or self.name) if hasattr(self, option)}

    def make(self, name: str | None = None) -> CreditAssigner:
        """A new assigner; `name`, such as an env's own credit method, takes the place of `self.name`.

        Raises:
            ValueError: the name is unknown, or a value is out of range.
        """
        credit = make_credit(name or self.name, **self.options(name))
        scaled = self.return_scale == "running" and not getattr(credit, "scale_free", False)
        return ReturnScale(credit) if scaled else credit
