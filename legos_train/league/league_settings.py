"""Who the learner plays against: the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from legos_train.league.modes import MODES, Mode
from legos_train.rollout.players.actors import checked_word, listed
from legos_train.settings import Section

if TYPE_CHECKING:
    LeagueMode = str
else:
    LeagueMode = Literal[tuple(MODES)]


class LeagueSettings(Section):
    """Who the learner plays against."""

    mode: LeagueMode = Field(
        default="mirror",
        description="Who the learner plays against. "
        + "; ".join(f"`{name}`: {row.opponents}" for name, row in MODES.items())
        + ".",
    )
    opponents: tuple[Annotated[str, AfterValidator(checked_word)], ...] = Field(
        default=(), description=f"Players besides the snapshots: {listed('base')}."
    )
    latest: float = Field(default=0.2, ge=0, le=1)
    """Share of episodes in which the latest policy plays itself."""
    snapshot_every: int = Field(default=5, ge=1)
    """Optimiser steps between snapshots added to the pool."""
    pool: int = Field(default=25, ge=1)
    """Maximum snapshots kept; the oldest is dropped first, or with `psro` the one with the least weight."""
    start_from: int = Field(default=0, ge=0)
    """Step of the first snapshot; until then the learner plays itself."""
    pfsp_power: float = Field(default=2.0, gt=0)
    """`pfsp`: an opponent's weight is (1 - win rate against it) to this power."""
    payoff_games: int = Field(default=64, ge=0)
    """`psro`: games per pair of the pool to fill the payoff matrix; 0: exact payoffs, in games that can be solved."""
    pool_from: Path | None = None
    """Fill the pool from the checkpoints of another run."""

    @model_validator(mode="after")
    def _has_a_pool(self) -> LeagueSettings:
        if self.pool_from is not None and not self.rule.keeps_snapshots:
            others = ", ".join(name for name, row in MODES.items() if row.keeps_snapshots)
            raise ValueError(f'pool_from fills a pool, which mode "{self.mode}" does not have; use one of {others}')
        return self

    @property
    def rule(self) -> Mode:
        """The row of `MODES` that `mode` names."""
        return MODES[self.mode]
