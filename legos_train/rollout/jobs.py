"""An episode to play, and who played it, noted in its record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.rollout.players import Actor, actors

NOT_FINITE = "a reward was not finite"
TAKEN_BACK = "taken back by the environment"
UNSCORED = "unscored"
FIXED_ACTOR, FIXED_ROLE = NOT_TRAINED_HERE = ("actor not trainable", "role not trained")
"""Reasons why the run does not train a seat that the environment declares trainable."""


@dataclass(slots=True)
class Job:
    """One fully specified episode to play.

    Attributes:
        env: the env's name in the arena, or an id.
        seed: of the episode.
        players: by agent, else role, else `"*untrained"` for seats that the env does not train, else `"*"`.
            Actors in training; a generator replaces them by players.
        args: constructor arguments.
        options: passed to `reset`.
        group: episodes of one group are compared with one another.
        salt: distinguishes episodes of one seed.
        train_roles: the trained roles; None: every role.
        title: the `env_id` of the record; None: the env's own.
        begin: answers given before any player is asked: agents and their turns, in order, of an episode with the
            same seed and options.
    """

    env: str
    seed: int
    players: Mapping[str, Any]
    args: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    group: int | str | None = None
    salt: int = 0
    train_roles: tuple[str, ...] | None = None
    title: str | None = None
    begin: tuple[tuple[str, Turn], ...] = ()

    def seated(self, players: Mapping[str, Any]) -> Job:
        """The job with players in place of actors, titled by its env's name in the arena."""
        return Job(
            self.env,
            self.seed,
            players,
            self.args,
            self.options,
            self.group,
            self.salt,
            self.train_roles,
            self.env,
            self.begin,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values for another process. An episode that starts in the middle cannot be sent."""
        assert not self.begin, "a job with `begin` is played in this process"
        return {
            "env": self.env,
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


def mark_untrained(episode: Episode, job: Job, declared: Mapping[str, bool]) -> None:
    """Notes who played each seat and excludes from training what must not be trained on.

    A seat is trained if the env declares it trainable, the live policy played it, its actor is trainable, its role is
    selected and the episode was scored. Otherwise the reason is in `trajectory.info["untrained"]`.

    Args:
        episode: the played episode.
        job: its job.
        declared: agent -> whether the env declared its seat trainable at the start.
    """
    finite = all([math.isfinite(trajectory.total) for trajectory in episode.trajectories.values()])
    for agent, trajectory in episode.trajectories.items():
        if not finite:  # one bad reward makes the whole episode useless; it must not reach a mean or a store
            trajectory.carry = 0.0
            for turn in trajectory.turns:
                turn.reward = 0.0
        trainable = declared[agent]
        actor = actors.lookup(job.players, agent, trajectory.role, trainable)
        trajectory.info["player"] = actor.player
        if actor.learner is not None:
            trajectory.info["learner"] = actor.learner
        reason = None
        if not trainable:
            reason = "not trained by the environment"
        elif not trajectory.trainable:
            reason = TAKEN_BACK
        elif not finite:
            reason = NOT_FINITE
        elif episode.outcome == "unscored":  # a failed judge is not a reward
            reason = UNSCORED
        elif actor.model != actors.POLICY:
            reason = f"played by {actor.player}"
            trajectory.info["member"] = actor.player.removeprefix(actors.LEAGUE)
        elif not actor.trainable:
            reason = FIXED_ACTOR
        elif job.train_roles is not None and trajectory.role not in job.train_roles:
            reason = FIXED_ROLE
        if reason:
            leave_out(trajectory, reason)


def leave_out(trajectory: Trajectory, reason: str) -> None:
    """Excludes a trajectory from training; metrics, the log and the viewer show the reason."""
    trajectory.trainable = False
    trajectory.info["untrained"] = reason
