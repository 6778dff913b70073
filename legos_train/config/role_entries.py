"""The tables of a config that name envs, and who plays and learns in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from legos_train.config.sampling_settings import SeatSampling
from legos_train.rollout.players.actors import checked_word, listed
from legos_train.settings import Arguments, Section, as_named


class EnvEntry(Section):
    """One environment of the run: a table `[[env]]`, or `--env ID`."""

    id: str
    """An id from `legos envs list`, or `module:Name-v0`, or `file.py:Name-v0`."""
    name: str = ""
    """Its name in metrics and in `[actors."NAME/role"]`; its id by default."""
    weight: float = Field(default=1.0, gt=0)
    """How often its episodes are drawn, relative to the other envs of the run."""
    args: Arguments = Field(default_factory=dict)
    """Constructor arguments; the text "null" stands for None."""
    options: Arguments = Field(default_factory=dict)
    """Passed to every `reset(options=...)`."""
    train_roles: tuple[str, ...] | None = None
    """Roles to train on; none: every seat that the environment declares trainable."""
    credit: str | None = None
    """A credit method for this env's episodes, instead of `credit.name`."""
    league: bool | None = None
    """Whether league members play here; none: only if the policy trains two seats or more."""

    @property
    def label(self) -> str:
        return self.name or self.id


class RoleEntry(Section):
    """Who plays a role."""

    system_prompt: str = ""
    """Prepended to every conversation of the role."""
    model: Annotated[str, AfterValidator(checked_word)] | None = Field(
        default=None,
        description=f"Who plays: {listed('policy', 'base')}. None: the policy for seats that are trained, the base "
        "model for judges.",
    )
    trainable: bool = True
    """Whether the role may be trained on; off: it plays, but its actions never enter a batch."""


class ActorEntry(SeatSampling, RoleEntry):
    """Who plays a role: a table `[actors.ROLE]`, see `legos_train.Actor`; seats that the environment does not train
    have temperature 0 unless it is set.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...


class LearnerEntry(Section):
    """One of several policies trained together: a table `[[learner]]`, or `--learner NAME=ROLE,ROLE`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """Its name in metrics, and the folder of its adapter."""
    roles: tuple[str, ...] = Field(min_length=1)
    """The roles or agents it plays and learns from; with the prefix `ENV/`, only in that env. Learners that name the
    same one are rivals: they take turns in it."""
    opponents: tuple[str, ...] = ()
    """Of the learners that share its seats, those that it plays against, itself too if named; none: all of them."""
    latest: float | None = Field(default=None, ge=0, le=1)
    """Share of its games against current weights rather than members of the league; none: `league.latest`."""
    rank: int | None = Field(default=None, ge=1, le=512)
    """Rank of its adapter; none: `lora.rank`."""
    optim: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[optim]` that differ for this learner."""
    loss: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[loss]` that differ for this learner."""
    credit: dict[str, Any] = Field(default_factory=dict)
    """Settings of `[credit]` that differ for this learner."""

    _named = field_validator("credit", "loss", mode="before")(as_named)

    @field_validator("optim", "loss", "credit")
    @classmethod
    def _writable(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Writes None as the text that stands for it in files, so that the table round-trips."""
        return {name: "none" if value is None else value for name, value in values.items()}
