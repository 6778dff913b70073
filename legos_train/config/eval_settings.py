"""What a run evaluates during training: its own environments, and held-out ones that it never trains on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from legos_train.config.sampling_settings import SeatSampling
from legos_train.rollout.players.actors import checked_word, listed
from legos_train.settings import Arguments, Section, as_entries


class HeldOutEnv(Section):
    """An environment that is evaluated and never trained on."""

    id: str
    """An id from `legos envs list`, or `module:Name-v0`, or `file.py:Name-v0`."""
    name: str = ""
    """The prefix of its metrics, as in `gsm8k/accuracy`; its id by default."""
    args: Arguments = Field(default_factory=dict)
    """Constructor arguments; the text "null" stands for None."""
    source: str | None = None
    """The constructor argument `source`: where its items come from, such as a file."""
    options: Arguments = Field(default_factory=dict)
    """Passed to every `reset(options=...)`."""
    opponent: Annotated[str, AfterValidator(checked_word)] | None = Field(
        default=None,
        description=f"Plays the other seats: {listed('self', 'base')}. None: exact numbers if the game can be solved, "
        "else `random` or self-play.",
    )
    games: int | None = Field(default=None, ge=1)
    """Number of games, rounded up to whole seeds; none: `eval.games`."""
    samples: int = Field(default=1, ge=1)
    """Games per seed and side: several answers to a problem give pass@k."""
    every: int | None = Field(default=None, ge=0)
    """Steps between evaluations; 0: only before the first and after the last; none: `eval.every`."""
    seed: int = Field(default=0, ge=0)
    """First seed of its games, the same in every run: with `args = {order = "sequential"}` the first problem."""

    @property
    def label(self) -> str:
        return self.name or self.id

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor arguments with the source."""
        return self.args if self.source is None else {**self.args, "source": self.source}

    @model_validator(mode="after")
    def _consistent(self) -> HeldOutEnv:
        if self.name and not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(f"name may contain only letters, digits, '_', '.' and '-'; got {self.name!r}")
        if self.source is not None and "source" in self.args:
            raise ValueError(f"{self.label}: give source once, in `source` or in `args`")
        return self


class HeldOutEntry(SeatSampling, HeldOutEnv):
    """An environment that is evaluated and never trained on: a table `[[eval.env]]`, or `--eval-env ID`."""

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...


class EvaluationSettings(Section):
    """Evaluations during training, on fixed seeds."""

    every: int = Field(default=10, ge=0)
    """Steps between evaluations; 0: only before the first and after the last. Games in which over 500 information sets
    are computed are evaluated as with 0."""
    games: int = Field(default=256, ge=2)
    """Number of games, if no exact numbers can be computed."""
    best: str | None = None
    """The metric that selects `RUN/best`, such as `nash_conv` or `gsm8k.accuracy`; none: the first metric of the first
    environment."""
    env: tuple[HeldOutEntry, ...] = ()
    """Held-out environments: tables `[[eval.env]]`."""

    _entries = field_validator("env", mode="before")(as_entries)

    def plain(self) -> dict[str, Any]:
        """See `Section.plain`; a held-out environment has only the settings that differ from the default."""
        out = super().plain()
        entries = [{k: v for k, v in entry.plain().items() if v not in ("", {})} for entry in self.env]
        return {**{key: value for key, value in out.items() if key != "env"}, **({"env": entries} if entries else {})}
