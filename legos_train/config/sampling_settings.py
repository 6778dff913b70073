"""How actions are sampled: `inference.DrawParams`, and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from legos_train.settings import DRAW_OPTIONS, Section, settings_with


class SamplingLimits(Section):
    """How actions are sampled during training."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens per action; none: a limit that suits the bundled model, or 1024 for any other model."""
    thinking_tokens: int | None = Field(default=None, ge=0)
    """Maximum tokens per thought, which count towards `max_tokens`; at the limit the thought is closed and the action
    follows. None: no separate limit."""
    max_mismatch: float | None = Field(default=None, gt=0)
    """The run stops if sampler and trainer disagree by more than this, in nats, on the log-probability of a token
    sampled from the current weights. None: 0.1 in float32 on a CPU, otherwise 3, since half precision rounds."""


if TYPE_CHECKING:

    class SamplingSettings(SamplingLimits):
        """`SamplingLimits`, and a setting for each number of `inference.DrawParams`."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, option: str) -> Any: ...

else:
    SamplingSettings = settings_with(SamplingLimits, "SamplingSettings", DRAW_OPTIONS)
