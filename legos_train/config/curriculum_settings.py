"""What episodes are about: the table of task samplers, and their settings."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from legos_train.settings import Section


class SamplerRow(NamedTuple):
    """A row of `SAMPLER_ROWS`."""

    place: str
    """Where it is: `module:function`, called with the settings, the store and the arena."""
    env: str
    """An environment that it is for."""


SAMPLER_ROWS = {
    "proposed_problems": SamplerRow("legos_train.arena.curriculum.proposed:ProposedProblems.of", "ProposerSolver-v0"),
    "learnability": SamplerRow("legos_train.arena.curriculum.items:LearnabilitySampler.of", "GSM8K-v0"),
    "corpus": SamplerRow("legos_train.arena.curriculum.items:CorpusSampler.of", "SPICE-v0"),
}
"""The task samplers by name. They are imported only where one is made: the arena is above the settings."""


def _sampler_name(name: str) -> str:
    if name not in SAMPLER_ROWS and not re.fullmatch(r"[^:\s]+:[^:\s]+", name):
        raise ValueError(f"must be one of {', '.join(SAMPLER_ROWS)} and module:function")
    return name


class CurriculumSettings(Section):
    """A store that episodes share: problems, corpus passages, anything that a task sampler passes to `reset`."""

    sampler: Annotated[str, AfterValidator(_sampler_name)] | None = Field(
        default=None,
        description=f"Task sampler: {', '.join(f'`{name}`' for name in SAMPLER_ROWS)}, or `module:function`; "
        "none: no artifact store.",
    )
    share: float = Field(default=0.5, ge=0, le=1)
    """Share of episodes whose task the sampler draws; `proposed_problems` first waits until enough are stored."""
    low: float = Field(default=0.1, ge=0, le=1)
    """Learnability gate: artifacts with a lower pass rate are not drawn."""
    high: float = Field(default=0.9, ge=0, le=1)
    """Learnability gate: artifacts with a higher pass rate are not drawn."""
    max_age: int | None = Field(default=None, ge=1)
    """Steps after which an artifact is no longer drawn."""
    capacity: int = Field(default=10_000, ge=1)
    """Maximum number of artifacts kept; the least learnable is dropped first."""
