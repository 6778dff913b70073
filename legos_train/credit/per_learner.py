"""A separate credit method for each of several learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs.records import Episode
from legos_train.credit.assigner import Advantages, CreditAssigner, check_method
from legos_train.loss.batch import seats_of


class PerLearner:
    r"""A separate credit method for each of several learners.

    Each method sees only the seats of its learner (`info["learner"]` of a trajectory), as if no other were trained, so
    learners share no baselines.

    When: `[[learner]]` tables; such a run uses this automatically.

    When not: one policy plays all roles; see `per_role`.

    Source: none; it only routes.

    Args:
        by_learner: name -> its assigner.
    """

    name = "per_learner"

    def __init__(self, by_learner: Mapping[str, CreditAssigner]) -> None:
        self.by_learner = dict(by_learner)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        out: list[Advantages] = [{} for _ in episodes]
        for learner, method in self.by_learner.items():
            for index, found in enumerate(method.assign([seats_of(episode, learner) for episode in episodes])):
                out[index].update(found)
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name, "by_learner": {name: m.state_dict() for name, m in self.by_learner.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        for learner, method in self.by_learner.items():
            method.load_state_dict(state["by_learner"][learner])
