"""No baseline at all: Williams 1992, "Simple statistical gradient-following algorithms", Machine Learning 8.

`A = R` for every turn, times `gamma` to the number of the agent's own turns that follow. Unbiased, and of large
variance where returns have a large mean: what the other methods are measured against. Not to be confused with
`constant`, which gives every turn the same weight whatever came of it.

Order: every episode alone decides. Cold start: none; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from legos_envs.records import Episode

from .common import Advantages, Stateless, check_unit, trained, turn_discounts


class ReinforceCredit(Stateless):
    """The return of the trajectory; `gamma` in [0, 1] discounts by turns from the end."""

    name = "reinforce"

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma = check_unit("gamma", gamma)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`."""
        return [{t.agent: t.total * turn_discounts(len(t.turns), self.gamma) for t in trained(e)} for e in episodes]
