"""GiGPO: Feng et al. 2025, "Group-in-group policy optimization", arXiv 2505.10978, sections 4.1 and 4.2.

`A_t = A_episode + step_weight * A_step`. The episode advantage is GRPO's over the role in the group. For the step
advantage, the turns of the role that read equal observations anywhere in the group's episodes (the paper's anchor
states) are a group of their own, and their discounted returns-to-go are compared. Where an observation occurs once, its
step advantage is 0 and the turn keeps the episode's.

Equal means equal messages, word for word: with the whole dialogue in the prompt few turns after the first have peers;
with `memory="state"` many do. A repeated state of one episode counts every time, as in the paper, so its own later
returns are among its peers.

`std` divides both terms by their group's standard deviation (the paper's choice of normalisation; 1 otherwise).
A trajectory without a peer in its group: `singleton`, as in group.py, for the episode's term.

Order and cold start as in group.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from legos_envs.records import Episode

from .common import Advantages, check_unit, group_of, moments, prompt_key, returns_to_go, trained
from .group import GRPOCredit


class GiGPOCredit(GRPOCredit):
    """Episode advantage plus `step_weight` (at least 0) times the step advantage, whose returns `gamma` discounts."""

    name = "gigpo"

    def __init__(
        self,
        *,
        step_weight: float = 1.0,
        gamma: float = 1.0,
        std: bool = False,
        singleton: str = "zero",
        decay: float = 0.95,
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        if not 0.0 <= step_weight < float("inf"):
            raise ValueError(f"step_weight must be at least 0 and finite, got {step_weight!r}")
        self.step_weight = step_weight
        self.gamma = check_unit("gamma", gamma)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Raises ValueError for an episode without a group."""
        out = super().assign(episodes)
        every: dict[Hashable, list[float]] = defaultdict(list)
        rows: list[list[tuple[str, NDArray[np.float64], list[Hashable]]]] = []
        for episode in episodes:
            row = []
            for trajectory in trained(episode):
                where = (episode.env_id, group_of(episode, "credit 'rae'"), trajectory.role)
                keys: list[Hashable] = [(where, prompt_key(turn)) for turn in trajectory.turns]
                targets = returns_to_go(trajectory, self.gamma)
                for key, target in zip(keys, targets.tolist(), strict=True):
                    every[key].append(target)
                row.append((trajectory.agent, targets, keys))
            rows.append(row)
        scales = {key: moments(values) for key, values in every.items()}
        for advantages, row in zip(out, rows, strict=True):
            for agent, targets, keys in row:
                for number, key in enumerate(keys):
                    centre, spread = scales[key]
                    step = (targets[number] - centre) / (spread if self.std else 1.0)
                    advantages[agent][number] += self.step_weight * step
        return out
