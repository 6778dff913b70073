"""A separate credit method for some roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from legos_envs.records import Episode
from legos_train.credit.assigner import Advantages, CreditAssigner, check_method


class PerRole:
    r"""Another credit method for some roles.

    Once per batch, each method sees the episodes with only its own roles, as if the others were not trained.

    When: the roles of one environment need different comparisons, such as a single proposer per episode and solvers
    with siblings.

    When not: one method suits all roles. This splits a group mean over all seats by role.

    Source: none; it only routes.

    Args:
        default: for all other roles.
        by_role: role -> its assigner.
    """

    name = "per_role"

    def __init__(self, default: CreditAssigner, by_role: Mapping[str, CreditAssigner]) -> None:
        self.default, self.by_role = default, dict(by_role)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        out: list[Advantages] = [{} for _ in episodes]
        for role, method in [(None, self.default), *self.by_role.items()]:
            part = [self._only(episode, role) for episode in episodes]
            for index, found in enumerate(method.assign(part)):
                out[index].update(found)
        return out

    def _only(self, episode: Episode, role: str | None) -> Episode:
        kept = {
            agent: trajectory
            for agent, trajectory in episode.trajectories.items()
            if (trajectory.role == role if role is not None else trajectory.role not in self.by_role)
        }
        return replace(episode, trajectories=kept)

    def state_dict(self) -> dict[str, Any]:
        own = {role: method.state_dict() for role, method in self.by_role.items()}
        return {"method": self.name, "default": self.default.state_dict(), "by_role": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        self.default.load_state_dict(state["default"])
        for role, method in self.by_role.items():
            method.load_state_dict(state["by_role"][role])
