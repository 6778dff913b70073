"""Who sits where: the sides of a game, which one the learner takes, and draws that depend only on their key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from legos_envs.records import Episode
from legos_envs.table import keyed_generator


class Seating(NamedTuple):
    """Where the learner sits, and for every other side a point in [0, 1) at which its member is drawn."""

    learner: int
    opponents: dict[int, float]


class Assignment(NamedTuple):
    """Who plays the trained seats of a game.

    Attributes:
        learners: agent -> the learner that plays and learns, in seats that several share.
        members: agent -> the member in the seat, from which nobody learns.
    """

    learners: Mapping[str, str]
    members: Mapping[str, str]


def seat(seed: int, step: int, number: int, sides: int, latest: float) -> Seating | None:
    """The seating of episode `number` (from 0) of a step; None for mirror play.

    A share `latest` of the numbers is mirror play, evenly spread, with a phase drawn per step so that small batches
    get their share too. The others come in rounds of `sides`: in a round the learner takes every side once, and the
    member that sits next to it (and next but one ...) is drawn at the same point. Which side is first moves on by one
    from step to step.
    """
    phase = float(keyed_generator(seed, f"league/{step}").random())
    mirrored = math.floor(number * latest + phase)
    if math.floor((number + 1) * latest + phase) > mirrored:
        return None
    played, turn = divmod(number - mirrored, sides)
    learner = (turn + step) % sides
    points = keyed_generator(seed, f"league/{step}/{played}").random(sides - 1)
    return Seating(learner, {(learner + ahead) % sides: float(at) for ahead, at in enumerate(points, start=1)})


def sides_of(seats: Sequence[str], roles: Mapping[str, str] | None = None) -> list[list[str]]:
    """The seats by role, in their order; seat by seat where all have one role or no roles are given."""
    by_role: dict[str, list[str]] = {}
    for agent in seats:
        by_role.setdefault(roles.get(agent, agent) if roles else agent, []).append(agent)
    return list(by_role.values()) if len(by_role) > 1 else [[agent] for agent in seats]


def draw(mixture: Mapping[str, float], at: float) -> str:
    """The member at the point `at` in [0, 1) when the mixture's shares are laid end to end."""
    total = sum(mixture.values())
    names = [name for name, share in mixture.items() if share > 0]
    for name, upto in zip(names, accumulate(mixture[name] / total for name in names)):
        if at < upto:
            return name
    return names[-1]


def mark(episode: Episode, plan: Mapping[str, str]) -> None:
    """Marks opponents' trajectories as untrainable and records who played them in `info["member"]`.

    Raises:
        ValueError: the plan seats an agent that the episode does not have.
    """
    check_seats(episode, plan)
    for agent, member in plan.items():
        episode.trajectories[agent].trainable = False
        episode.trajectories[agent].info["member"] = member


def check_seats(episode: Episode, plan: Mapping[str, str]) -> None:
    """Raises ValueError when the plan seats an agent that the episode does not have."""
    for agent in plan:
        if agent not in episode.trajectories:
            raise ValueError(f"the plan seats {agent!r}, whom the episode does not have: {list(episode.trajectories)}")
