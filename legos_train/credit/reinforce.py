"""No baseline at all: the reference for the other methods.

Order: every episode alone decides. Cold start: none; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from legos_envs.records import Episode
from legos_train.credit.assigner import GAMMA, Advantages, Gamma, Stateless, check_unit, method, trained, turn_discounts


@method
class ReinforceCredit(Stateless):
    r"""The return itself, without any baseline.

    $$A_t = \gamma^{T-1-t}\,R$$

    R is the return of a trajectory of T turns, t = 0 ... T - 1. The gradient is unbiased, but its variance is large
    where returns have a large mean.

    When: as the yardstick for other methods. Where returns have a mean near 0 anyway, it was not clearly different from
    `rae` in the comparison (docs/credit.md).

    When not: a role is paid a large amount whatever it does.

    Source: Williams 1992, "Simple statistical gradient-following algorithms", Machine Learning 8.

    Args:
        gamma: in [0, 1].

    Raises:
        ValueError: gamma is out of range.
    """

    name = "reinforce"

    def __init__(self, gamma: Gamma = GAMMA) -> None:
        self.gamma = check_unit("gamma", gamma)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        return [{t.agent: t.total * turn_discounts(len(t.turns), self.gamma) for t in trained(e)} for e in episodes]
