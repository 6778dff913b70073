"""Who answers for a role. An env says which seats there are; actors say who sits in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from legos_envs import Policy
from legos_envs.records import Episode, Trajectory

POLICY, BASE, LEAGUE = "policy", "base", "league:"
NOT_FINITE = "a reward was not finite"
ANYBODY, UNTRAINED = "*", "*untrained"
"""Keys of a job's players: for everybody; for the seats that the env does not train."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who answers for a role, and how.

    Args:
        role: a role of the environments, or `ENV/ROLE` for one environment of several.
        system_prompt: put before the conversation.
        temperature: of sampling; 0 takes the likeliest token.
        max_tokens: most tokens of one action.
        model: `"policy"` (the weights being trained), `"base"` (the model without its adapter), a word of `legos eval`
            (`"random"`, `"optimal"`, `"scripted:NAME"`, `"runs/x@best"`, an endpoint's URL `"http://host/v1#model"`),
            or a function from a `legos_envs.Decision` to the text of the action, which may be a coroutine function.
        trainable: off, the role plays but teaches nothing. Only what `"policy"` says is ever trained on.
    """

    role: str
    system_prompt: str = ""
    temperature: float = 1.0
    max_tokens: int = 256
    model: str | Policy = POLICY
    trainable: bool = True
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.role:
            raise ValueError("an Actor needs the name of a role")
        if not self.temperature >= 0:
            raise ValueError(f"the temperature of actor {self.role!r} must be at least 0, got {self.temperature}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens of actor {self.role!r} must be at least 1, got {self.max_tokens}")
        if not (isinstance(self.model, str) or callable(self.model)):
            raise TypeError(
                f"the model of actor {self.role!r} must be a word or a function from Decision to text, "
                f"got {type(self.model).__name__}"
            )

    @property
    def player(self) -> str:
        """How it is called in logs."""
        return self.model if isinstance(self.model, str) else getattr(self.model, "__name__", type(self.model).__name__)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for another process.

        Raises:
            TypeError: the model is a function, which cannot be sent.
        """
        if not isinstance(self.model, str):
            raise TypeError(
                f"actor {self.role!r} is played by a Python function, which cannot be sent to the generating process; "
                "set asynchronous.backend = 'thread', or give a word such as 'random'"
            )
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play, with nothing left open: env, seed, and who plays.

    `label` is the env's name in the arena, `args` its constructor arguments. `players` by agent, else role, else
    `"*untrained"` for seats that the env does not train, else `"*"`. `train_roles`: None means every role.
    """

    label: str
    seed: int
    players: Mapping[str, Actor]
    args: Mapping[str, Any]
    options: Mapping[str, Any]
    group: int | str | None = None
    salt: int = 0
    train_roles: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "seed": self.seed,
            "players": {key: actor.to_json() for key, actor in self.players.items()},
            "args": dict(self.args),
            "options": dict(self.options),
            "group": self.group,
            "salt": self.salt,
            "train_roles": self.train_roles,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        roles = data["train_roles"]
        players = {key: Actor(**actor) for key, actor in data["players"].items()}
        return cls(**{**data, "players": players, "train_roles": None if roles is None else tuple(roles)})


def seated(players: Mapping[str, Any], agent: str, role: str, trainable: bool) -> Any:
    """Who plays an agent: its own entry, its role's, that of untrained seats, everybody's; None when there is none."""
    for key in (agent, role) if trainable else (agent, role, UNTRAINED):
        if key in players:
            return players[key]
    return players.get(ANYBODY)


def mark(episode: Episode, job: Job, declared: Mapping[str, bool]) -> None:
    """Notes who played each seat and takes out of training what must not be trained on.

    A seat is trained when the env declares it trainable, the live policy played it, its actor is trainable, its role is
    asked for and the episode was scored. The reason why not stands in `trajectory.info["untrained"]`.

    Args:
        declared: agent -> whether the env declared its seat trainable at the start.
    """
    finite = all(math.isfinite(trajectory.total) for trajectory in episode.trajectories.values())
    for trajectory in episode.trajectories.values():
        if not finite:  # one bad reward makes the whole episode worthless, and must not reach a mean or a store
            trajectory.carry = 0.0
            for turn in trajectory.turns:
                turn.reward = 0.0
        actor = seated(job.players, trajectory.agent, trajectory.role, declared[trajectory.agent])
        trajectory.info["player"] = actor.player
        reason = None
        if not declared[trajectory.agent]:
            reason = "not trained by the environment"
        elif not trajectory.trainable:
            reason = "taken back by the environment"
        elif not finite:
            reason = NOT_FINITE
        elif episode.outcome == "unscored":  # a judge that failed is no reward
            reason = "unscored"
        elif actor.model != POLICY:
            reason = f"played by {actor.player}"
            trajectory.info["member"] = actor.player.removeprefix(LEAGUE)
        elif not actor.trainable:
            reason = "actor not trainable"
        elif job.train_roles is not None and trajectory.role not in job.train_roles:
            reason = "role not trained"
        if reason:
            leave_out(trajectory, reason)


def leave_out(trajectory: Trajectory, reason: str) -> None:
    """Takes a trajectory out of training; metrics, the log and the viewer show the reason."""
    trajectory.trainable = False
    trajectory.info["untrained"] = reason
