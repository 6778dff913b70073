"""The same advantage for every turn: plain imitation of whatever was played."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from legos_envs.records import Episode

from .common import Advantages, Stateless, trained


class ConstantCredit(Stateless):
    """Every trained turn weighs `value`. With 1.0 the policy gradient is the gradient of log-likelihood."""

    name = "constant"

    def __init__(self, value: float = 1.0) -> None:
        if not math.isfinite(value):
            raise ValueError(f"value must be finite, got {value!r}")
        self.value = value

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`."""
        return [{t.agent: np.full(len(t.turns), float(self.value)) for t in trained(episode)} for episode in episodes]
