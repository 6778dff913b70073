"""The parts that credit methods share: the trained trajectories and their returns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args, get_origin, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from legos_envs.records import Episode, Message, Trajectory, Turn

Advantages = dict[str, NDArray[np.float64]]
METHODS: dict[str, type[Any]] = {}
"""The credit methods by name; see `method`."""

Decay = Annotated[float, Field(ge=0, lt=1, description="decay of the moving baseline, which is that of `rae`.")]
Gamma = Annotated[
    float, Field(gt=0, le=1, description="discount factor per turn, counted from the end of the episode.")
]
Std = Annotated[bool, Field(description="divide by the standard deviation of the group.")]
Singleton = Annotated[
    Literal["zero", "rae"],
    Field(description="the advantage of an agent without peers is 0, or what `rae` would give it."),
]
DECAY, GAMMA = 0.95, 1.0
SINGLETON: Literal["zero", "rae"] = "rae"
"""Options of several methods: what each accepts and means as a setting, and their defaults."""

Kind = TypeVar("Kind", bound=type[Any])


def method(kind: Kind) -> Kind:
    """Registers a class as the credit method `kind.name`, under which settings, help and docs find it.

    The arguments of its constructor become settings, see `methods.declared_options`.
    """
    METHODS[kind.name] = kind
    return kind


@runtime_checkable
class CreditAssigner(Protocol):
    """Turns finished episodes into one advantage per turn. A trainer reads nothing else.

    An assigner that compares the episodes of a group sets `groups = True`; one whose advantages do not grow with the
    rewards sets `scale_free = True`.
    """

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """One dict per episode: agent -> advantages (turns,). It holds only trainable agents that took a turn.

        The result for an episode depends on which episodes are in the batch, never on their order.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state kept between batches, as plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`. Raises ValueError for the state of another method."""
        ...


class Stateless:
    """The two state methods for credit that remembers nothing between batches."""

    name: str

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)


def check_method(state: dict[str, Any], name: str) -> None:
    """Raises ValueError unless `state` was saved by the credit method called `name`."""
    if state.get("method") != name:
        raise ValueError(
            f"credit state was saved by {state.get('method')!r} but is being loaded into {name!r}; "
            "resume with the credit method of the checkpoint or start without its credit state"
        )


def trained(episode: Episode) -> Iterator[Trajectory]:
    """The trajectories that get an advantage, sorted by agent. Raises ValueError for a reward that is not finite."""
    for agent in sorted(episode.trajectories):
        trajectory = episode.trajectories[agent]
        if not trajectory.trainable or not trajectory.turns:
            continue
        if not math.isfinite(trajectory.total):
            raise ValueError(
                f"agent {agent!r} of {episode.env_id} (seed {episode.seed}) has the return {trajectory.total}; "
                "rewards must be finite: drop the episode before credit is assigned or fix its reward"
            )
        yield trajectory


class PromptKeys:
    """Keys of what agents read: equal messages, equal keys.

    Turns of a conversation share their messages, so each is only looked at once.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[Message, int]] = {}  # by identity, which no other message gets while this is kept

    def __call__(self, turn: Turn) -> tuple[int, ...]:
        return tuple([known[1] if (known := self._known.get(id(m))) else self._new(m) for m in turn.observation])

    def _new(self, message: Message) -> int:
        number = self._numbers.setdefault(tuple(sorted(message.items())), len(self._numbers))
        self._known[id(message)] = message, number
        return number


def turn_discounts(turns: int, gamma: float) -> NDArray[np.float64]:
    """`gamma ** (turns - 1 - t)` for t = 0 .. turns - 1: the last turn weighs 1, earlier ones less. Shape (turns,)."""
    return gamma ** np.arange(turns - 1, -1, -1, dtype=np.float64)


def returns_to_go(trajectory: Trajectory, gamma: float) -> NDArray[np.float64]:
    """`G_t = r_t + gamma * G_{t+1}` over the agent's own turns, shape (turns,). `carry` came before all of them."""
    return np.array(to_go(trajectory, gamma), dtype=np.float64)


def to_go(trajectory: Trajectory, gamma: float) -> list[float]:
    """`returns_to_go` as plain numbers."""
    out: list[float] = []
    following = 0.0
    for turn in reversed(trajectory.turns):
        following = turn.reward + gamma * following
        out.append(following)
    return out[::-1]


EPSILON = 1e-6  # added to a standard deviation, so that equal returns give 0


def mean(values: Sequence[float]) -> float:
    """The mean with an exactly rounded sum, so that it does not depend on the order of the values.

    Of equal values it is that value: a quotient may differ from it by rounding, which would pass for an advantage.
    """
    if len(values) == 1 or min(values) == max(values):
        return values[0]
    return math.fsum(values) / len(values)


def moments(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the population standard deviation plus `EPSILON`; the order of the values does not matter."""
    centre = mean(values)
    return centre, mean([(value - centre) ** 2 for value in values]) ** 0.5 + EPSILON


def group_of(episode: Episode, instead: str) -> int | str:
    """The group of an episode. Raises ValueError, naming what to use `instead`, when it has none."""
    if episode.group is None:
        raise ValueError(
            f"an episode of {episode.env_id} (seed {episode.seed}) has no group, so there is nothing to compare it "
            f"with; start several episodes per seed with the same `group`, or use {instead}"
        )
    return episode.group


def check_unit(name: str, value: float) -> float:
    """`value` if it lies in [0, 1], else ValueError."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
    return value


def check_choice(name: str, value: str, kind: Any) -> str:
    """`value` if it is one of those in `kind`, a `Literal`, else ValueError."""
    choices = get_args(get_args(kind)[0] if get_origin(kind) is Annotated else kind)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
