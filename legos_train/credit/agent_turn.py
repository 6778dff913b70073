"""Groups by agent and turn. The paper samples several answers to one prompt at every turn; here whole episodes are
sampled, so that peers share the seed and the turn number, not the words that were said before.

Order: the whole batch is scored, then folded into the baselines. Cold start: the fallback's baseline is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from legos_envs.records import Episode, Trajectory
from legos_train.credit.assigner import (
    Advantages,
    check_choice,
    check_method,
    check_unit,
    group_of,
    mean,
    method,
    moments,
    returns_to_go,
    trained,
)
from legos_train.credit.rae import Baselines, Key


@method
class AgentTurnCredit:
    r"""What came after a turn, minus the mean of the same role's turn with the same number in the group.

    In a dialogue the prompts of different roles, and of one role at different turns, are different questions. A group
    that mixes them compares what cannot be compared.

    $$A_t = G_t - \frac{1}{n} \sum_{j=1}^{n} G_t^{(j)} \qquad G_t = r_t + \gamma\,G_{t+1}$$

    The sum goes over the n episodes of the group in which the role had a turn number t, counted from 0 among its own.
    With `std` the difference is divided by their standard deviation. A turn without peers gets 0, or with `singleton =
    "rae"` its return-to-go minus a moving baseline.

    When: episodes of several turns, played in groups. On Leduc poker its average policy was ahead of that of `rae`,
    with KL (docs/credit.md).

    When not: games end at very different times. Late turns then have few peers, or none.

    Source: AT-GRPO, Zhao et al. 2025, "Stronger together", arXiv 2510.11062; there several answers are sampled at every
    turn, here whole episodes.

    Args:
        std: divide by the population standard deviation of the peers.
        gamma: in [0, 1].
        singleton: `"zero"` or `"rae"`, for a turn without peers.
        decay: of the fallback's moving baseline, which averages the trajectories' mean return-to-go.

    Raises:
        ValueError: a value is out of range.
    """

    name = "agent_turn"
    groups = True

    def __init__(self, *, std: bool = False, gamma: float = 1.0, singleton: str = "rae", decay: float = 0.95) -> None:
        self.std = std
        self.gamma = check_unit("gamma", gamma)
        self.singleton = check_choice("singleton", singleton, ("zero", "rae"))
        self.baselines = Baselines(decay)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Raises ValueError for an episode without a group."""
        every: dict[Hashable, list[float]] = defaultdict(list)
        seen: dict[Key, list[float]] = defaultdict(list)
        rows: list[list[tuple[Trajectory, list[float], Hashable]]] = []
        for episode in episodes:
            row: list[tuple[Trajectory, list[float], Hashable]] = []
            for trajectory in trained(episode):
                targets = returns_to_go(trajectory, self.gamma).tolist()
                key: Hashable = (episode.env_id, group_of(episode, "credit 'turn_level'"), trajectory.role)
                for number, target in enumerate(targets):
                    every[key, number].append(target)
                seen[episode.env_id, trajectory.role].append(mean(targets))
                row.append((trajectory, targets, key))
            rows.append(row)
        scales = {key: moments(values) for key, values in every.items()}
        out: list[Advantages] = []
        for episode, row in zip(episodes, rows, strict=True):
            advantages: Advantages = {}
            for trajectory, targets, peers in row:
                alone = self.baselines(episode.env_id, trajectory.role) if self.singleton == "rae" else None
                values = np.zeros(len(targets))
                for number, target in enumerate(targets):
                    if len(every[peers, number]) > 1:
                        centre, spread = scales[peers, number]
                        values[number] = (target - centre) / (spread if self.std else 1.0)
                    elif alone is not None:
                        values[number] = target - alone
                advantages[trajectory.agent] = values
            out.append(advantages)
        if self.singleton == "rae":
            self.baselines.fold(seen)
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name, "baselines": self.baselines.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        self.baselines.load_state_dict(state["baselines"])
