"""A baseline per prompt: what the same role earned from the same observation in other episodes of the batch.

A whole *episode* is left out, not just the turn: other turns of the same episode (a repeated state, the other seat of a
mirror match) were changed by this action, and subtracting them would bias the gradient.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from legos_envs.records import Episode, Trajectory
from legos_train.credit.assigner import (
    DECAY,
    GAMMA,
    Advantages,
    Decay,
    Gamma,
    PromptKeys,
    check_choice,
    check_unit,
    mean,
    method,
    to_go,
    trained,
    turn_discounts,
)
from legos_train.credit.rae import Baselines, Key, RemembersBaselines

Target = Literal["to_go", "return"]


@method
class SamePromptCredit(RemembersBaselines):
    r"""What a turn earned, minus the mean for the same prompt in other episodes of the batch.

    Small games ask the same question hundreds of times in one batch. The mean over those turns predicts what a turn
    will earn far better than one number per role does.

    $$A_t = G_t - \frac{x_1 + \cdots + x_n + k\,b}{n + k} \qquad G_t = r_t + \gamma\,G_{t+1}$$

    x are the returns-to-go of the n turns in other episodes in which the role read the same messages. b is the moving
    baseline of the role as in `rae`, and k (`pseudo_count`) says how many observations it is worth. Where no other
    episode had the same prompt, b alone is the baseline.

    When: prompts recur, as in card and board games. It is the default. In the comparison it has the best average policy
    on Kuhn poker, with KL and without (docs/credit.md).

    When not: prompts never recur, as in free dialogue. It is then much like `rae`, on returns-to-go.

    Source: the leave-one-out baseline of Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!", with
    the prompt in place of the input; shrunk to the baseline of SPIRAL, arXiv 2506.24119.

    Args:
        pseudo_count: how many games the role's RAE baseline counts as (0: the prompt's mean alone).
        gamma: in [0, 1].
        decay: of the role's baseline; each trajectory folds the mean target of its turns into it, after the batch.
        target: credit a turn with `r_t + gamma * r_{t+1} + ...` (`to_go`), or with the whole return times gamma to the
            power of the number of following turns (`return`); with one reward at the end they are equal.

    Raises:
        ValueError: a value is out of range.
    """

    name = "same_prompt"

    def __init__(
        self,
        pseudo_count: Annotated[float, Field(ge=0)] = 2.0,
        gamma: Gamma = GAMMA,
        decay: Decay = DECAY,
        target: Target = "to_go",
    ) -> None:
        if not 0.0 <= pseudo_count < math.inf:
            raise ValueError(f"pseudo_count must be at least 0 and finite, got {pseudo_count!r}")
        self.pseudo_count = pseudo_count
        self.gamma = check_unit("gamma", gamma)
        self.target = check_choice("target", target, Target)
        self.baselines = Baselines(decay)

    def targets(self, trajectory: Trajectory) -> list[float]:
        """What each turn is credited with before a baseline is subtracted."""
        if self.target == "to_go":
            return to_go(trajectory, self.gamma)
        discounted: NDArray[np.float64] = trajectory.total * turn_discounts(len(trajectory.turns), self.gamma)
        return discounted.tolist()

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Each call is one batch, after which the role baselines are updated."""
        numbers: dict[Hashable, int] = {}  # of the prompts, in the order in which they were first read
        key_of = PromptKeys()
        same: dict[Key, dict[int, int]] = defaultdict(dict)  # the same by the ids of observations, which turns share
        every: list[list[float]] = []  # by prompt: targets in the batch
        seen: dict[Key, list[float]] = defaultdict(list)
        rows: list[tuple[list[tuple[str, Key, list[float], list[int]]], dict[int, list[float]]]] = []
        for episode in episodes:
            row, own = [], dict[int, list[float]]()  # the targets of the episode's prompts
            for trajectory in trained(episode):
                key = episode.env_id, trajectory.role
                known, targets, prompts = same[key], self.targets(trajectory), []
                for turn, target in zip(trajectory.turns, targets, strict=True):
                    prompt = known.get(id(turn.observation))
                    if prompt is None:
                        prompt = numbers.setdefault((key, key_of(turn)), len(numbers))
                        known[id(turn.observation)] = prompt
                        if prompt == len(every):
                            every.append([])
                    prompts.append(prompt)
                    every[prompt].append(target)
                    own.setdefault(prompt, []).append(target)
                seen[key].append(mean(targets))
                row.append((trajectory.agent, key, targets, prompts))
            rows.append((row, own))
        sums = [math.fsum(values) for values in every]
        priors = {key: self.baselines(*key) for key in seen}
        out: list[Advantages] = []
        for row, own in rows:
            advantages: Advantages = {}
            for agent, key, targets, prompts in row:
                prior = priors[key]
                values = [t - self._baseline(sums[p], len(every[p]), own[p], prior) for t, p in zip(targets, prompts)]
                advantages[agent] = np.array(values)
            out.append(advantages)
        self.baselines.fold(seen)
        return out

    def _baseline(self, total: float, count: int, own: list[float], prior: float) -> float:
        others = count - len(own)
        weight = others + self.pseudo_count
        if not others or not weight:
            return prior
        return (total - math.fsum(own) + self.pseudo_count * prior) / weight
