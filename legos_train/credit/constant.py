"""The same advantage for every turn: plain imitation of whatever was played."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from legos_envs.records import Episode
from legos_train.credit.assigner import Advantages, Stateless, method, trained


@method
class ConstantCredit(Stateless):
    r"""The same number for every turn, whatever the outcome: plain imitation of what was played.

    $$A_t = 1$$

    The policy gradient is then the gradient of the log-likelihood of the actions that were sampled.

    When: as a control that must not learn. With `filter.keep = "winners"` it imitates winners through the policy loss;
    the loss `sft` does that without advantages.

    When not: the outcome should matter. In the comparison it learns nothing, as it must (docs/credit.md).

    Source: none needed; this is maximum likelihood.

    Args:
        value: the advantage of every turn.

    Raises:
        ValueError: the value is not finite.
    """

    name = "constant"
    scale_free = True

    def __init__(self, value: float = 1.0) -> None:
        if not math.isfinite(value):
            raise ValueError(f"value must be finite, got {value!r}")
        self.value = value

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        return [{t.agent: np.full(len(t.turns), float(self.value)) for t in trained(episode)} for episode in episodes]
