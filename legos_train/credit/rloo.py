"""Leave-one-out: GRPO's group without the episode itself.

A whole episode is left out, not just the trajectory: the returns of others at the same table depend on this one's
actions. Siblings of one episode are what `hierarchical_grpo` compares.

Order and cold start as in group.py; a role that no other episode of the group has falls back to `singleton`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from legos_train.credit.assigner import DECAY, SINGLETON, Decay, Singleton, method
from legos_train.credit.group import PeerCredit


@method
class RLOOCredit(PeerCredit):
    r"""Return minus the mean return of the role in the other episodes of the group (leave-one-out).

    $$A_i = R_i - \frac{1}{n-1} \sum_{j \ne i} R_j$$

    The sum runs over the role's trajectories in the n - 1 other episodes. With one trajectory of the role per episode
    this is n / (n - 1) times the advantage of `grpo`: a mean that contains the return itself shrinks the gradient.
    Leaving the episode out makes the baseline independent of the action, so the gradient is unbiased.

    When: groups are small, where the factor n / (n - 1) matters, or an unbiased gradient is wanted.

    When not: there is one episode per deal; no trajectory then has peers. It was not run in the comparison of
    docs/credit.md.

    Source: Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!"; Ahmadian et al. 2024, "Back to
    basics", arXiv 2402.14740, section 3.2.

    Args:
        singleton: `"zero"` or `"rae"`, for a role that no other episode of the group has.
        decay: of the fallback's moving baseline.

    Raises:
        ValueError: a value is out of range.
    """

    name = "rloo"
    groups = True

    def __init__(self, *, singleton: Singleton = SINGLETON, decay: Decay = DECAY) -> None:
        super().__init__(singleton=singleton, decay=decay)

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        others = len(every) - len(own)
        if not others:
            return None
        if min(every) == max(every):
            return 0.0  # without the rounding below
        # One exactly rounded sum: taking own returns out of a sum that was rounded before would lose small others.
        return total - math.fsum([*every, *(-value for value in own)]) / others
