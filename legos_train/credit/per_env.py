"""Another credit method for some of a run's environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs.records import Episode
from legos_train.credit.assigner import Advantages, CreditAssigner, check_method


class PerEnv:
    r"""Another credit method for some of a run's environments.

    Episodes of an environment that names its own method go to that method; all others go to `credit.name`.

    Each method sees its episodes of a batch together, in batch order. A method without episodes in a batch is not
    called.

    When: one run trains on environments of different kinds, such as a card game, whose prompts recur, and problems with
    a right answer.

    When not: only the roles of one environment differ; see `per_role`.

    Source: none; it only routes.

    Args:
        default: for the episodes of every other env id.
        by_env: env id (`Episode.env_id`) -> its assigner; one assigner may serve several ids.
    """

    name = "per_env"

    def __init__(self, default: CreditAssigner, by_env: Mapping[str, CreditAssigner]) -> None:
        self.default = default
        self.by_env = dict(by_env)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        batches: dict[int, tuple[CreditAssigner, list[int]]] = {}
        for index, episode in enumerate(episodes):
            assigner = self.by_env.get(episode.env_id, self.default)
            batches.setdefault(id(assigner), (assigner, []))[1].append(index)
        out: list[Advantages] = [{} for _ in episodes]
        for assigner, indices in batches.values():
            for index, advantages in zip(indices, assigner.assign([episodes[i] for i in indices]), strict=True):
                out[index] = advantages
        return out

    def state_dict(self) -> dict[str, Any]:
        """The states of all assigners; one that serves several ids is written, and read, once per id."""
        return {
            "method": self.name,
            "default": self.default.state_dict(),
            "by_env": {env_id: self.by_env[env_id].state_dict() for env_id in sorted(self.by_env)},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError if the state is from another method or names other env ids."""
        check_method(state, self.name)
        if set(state["by_env"]) != set(self.by_env):
            raise ValueError(
                f"credit state has methods of its own for {sorted(state['by_env'])} but this run for "
                f"{sorted(self.by_env)}; resume with the environments and credit methods of the checkpoint"
            )
        self.default.load_state_dict(state["default"])
        for env_id, assigner in self.by_env.items():
            assigner.load_state_dict(state["by_env"][env_id])
