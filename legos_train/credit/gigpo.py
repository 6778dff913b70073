"""GiGPO: GRPO's advantage, plus one over turns with identical prompts.

Identical means the same messages, word for word. A state repeated within an episode counts every time, as in the paper,
so its own later returns are among its peers. `std` divides both terms by their group's standard deviation (the paper's
choice of normalisation; 1 otherwise).

Order and cold start as in group.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from legos_envs.records import Episode
from legos_train.credit.assigner import (
    DECAY,
    GAMMA,
    SINGLETON,
    Advantages,
    Decay,
    Gamma,
    PromptKeys,
    Singleton,
    Std,
    check_unit,
    group_of,
    method,
    moments,
    returns_to_go,
    trained,
)
from legos_train.credit.group import GRPOCredit


@method
class GiGPOCredit(GRPOCredit):
    r"""The advantage of `grpo`, plus the same comparison between turns of the group with identical prompts.

    Turns that start from the same prompt and continue differently show which action was better there, not only which
    episode.

    $$A_t = A^{\mathrm{grpo}} + w\,\left(G_t - \frac{1}{m} \sum_{j=1}^{m} G^{(j)}\right)$$

    G is the return-to-go of a turn, discounted by gamma. The sum runs over the m turns of the role, anywhere in the
    episodes of the group, whose messages are equal word for word; w is `step_weight`. A turn whose prompt occurs only
    once gets the episode's advantage alone.

    When: states recur within a group, as in environments with `memory = "state"`.

    When not: the prompt holds the whole dialogue. Few turns after the first then have a peer. It was not run in the
    comparison of docs/credit.md.

    Source: Feng et al. 2025, "Group-in-group policy optimization", arXiv 2505.10978, sections 4.1 and 4.2.

    Args:
        step_weight: weight of the step advantage relative to the episode's.
        gamma: in [0, 1], for the second term.
        std: divide both terms by the population standard deviation of their peers.
        singleton: `"zero"` or `"rae"`, for a trajectory without peers in the first term.
        decay: of the fallback's moving baseline.

    Raises:
        ValueError: a value is out of range.
    """

    name = "gigpo"
    groups = True

    def __init__(
        self,
        *,
        step_weight: Annotated[float, Field(ge=0)] = 1.0,
        gamma: Gamma = GAMMA,
        std: Std = False,
        singleton: Singleton = SINGLETON,
        decay: Decay = DECAY,
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
        key_of = PromptKeys()
        rows: list[list[tuple[str, NDArray[np.float64], list[Hashable]]]] = []
        for episode in episodes:
            row = []
            for trajectory in trained(episode):
                where = (episode.env_id, group_of(episode, "credit 'rae'"), trajectory.role)
                keys: list[Hashable] = [(where, key_of(turn)) for turn in trajectory.turns]
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
