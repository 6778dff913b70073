"""How actions are sampled, in a run and in single seats: `inference.DrawParams`, and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field

from legos_train.errors import ConfigError
from legos_train.rollout.players import Actor, actors
from legos_train.settings import DRAW_OPTIONS, Option, Section, settings_with


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


class SeatLimits(Section):
    """How actions of some seats are sampled, where it differs from the run."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens per action; none: `sampling.max_tokens`."""
    thinking_tokens: int | None = Field(default=None, ge=0)
    """Maximum tokens per thought; none: the same share of `max_tokens` as in `sampling`, but no limit for models other
    than the run's."""

    def over(self, default: Actor, where: str, model: str = actors.POLICY) -> dict[str, Any]:
        """All sampling parameters of a seat that `model` plays, as arguments of an `Actor`: these, or the default's.

        Raises:
            ConfigError: a thought may be as long as the action; the message begins with `where`.
        """
        found = {name: getattr(self, name) for name in OF_A_SEAT}
        found = {name: getattr(default, name) if value is None else value for name, value in found.items()}
        if self.thinking_tokens is None and default.thinking_tokens is not None:
            share = found["max_tokens"] * default.thinking_tokens // (default.max_tokens or actors.TOKENS)
            found["thinking_tokens"] = share if model in actors.OWN else None
        limit, most = found["thinking_tokens"], found["max_tokens"]
        if limit is not None and limit >= most:
            raise ConfigError(
                f"{where}: thinking_tokens ({limit}) must be less than max_tokens ({most}), which counts thought and "
                "action"
            )
        return found


def _of_a_seat(name: str, row: Option) -> Option:
    """The option with None for the run's value."""
    kind, *bounds = get_args(row.annotation)
    return row._replace(
        annotation=Annotated[(kind | None, *bounds)],  # type: ignore[valid-type]
        default=None,
        text=f"{row.text.removesuffix('.')}; none: `sampling.{name}`.",
    )


if TYPE_CHECKING:

    class SamplingSettings(SamplingLimits):
        """`SamplingLimits`, and a setting for each number of `inference.DrawParams`."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, option: str) -> Any: ...

    class SeatSampling(SeatLimits):
        """`SeatLimits`, and a setting for each number of `inference.DrawParams`; None: the run's."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, option: str) -> Any: ...

else:
    SamplingSettings = settings_with(SamplingLimits, "SamplingSettings", DRAW_OPTIONS)
    SeatSampling = settings_with(SeatLimits, "SeatSampling", {n: _of_a_seat(n, row) for n, row in DRAW_OPTIONS.items()})

OF_A_SEAT = tuple(SeatSampling.model_fields)
"""The names of the settings by which a seat's sampling may differ from the run's."""
