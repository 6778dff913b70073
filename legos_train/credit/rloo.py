"""Leave-one-out (RLOO): Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!"; Ahmadian et al. 2024,
"Back to basics", arXiv 2402.14740, section 3.2.

`A_i = R_i - mean(R_j)` over the same role in the *other* episodes of the group. With one trajectory of the role per
episode that is `n / (n - 1)` times GRPO's advantage: the group mean contains the return itself, which shrinks the
gradient, and leaving it out makes the baseline independent of the action, so the gradient is unbiased.

A whole episode is left out, not just the trajectory: the returns of others at the same table depend on this one's
actions. Siblings of one episode are what `hierarchical_grpo` compares.

Order and cold start as in group.py; a role that no other episode of the group has falls back to `singleton`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from legos_envs.records import Episode, Trajectory

from .common import group_of
from .group import PeerCredit


class RLOOCredit(PeerCredit):
    """Return minus the mean return of the role in the other episodes of the group.

    `singleton` is `"zero"` or `"rae"`; `decay` only matters with the latter.
    """

    name = "rloo"

    def __init__(self, *, singleton: str = "zero", decay: float = 0.95) -> None:
        super().__init__(singleton=singleton, decay=decay)

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        return (episode.env_id, group_of(episode, "credit 'rae'"), trajectory.role)

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        others = len(every) - len(own)
        if not others:
            return None
        # One exactly rounded sum: taking own returns out of a sum that was rounded before would lose small others.
        return total - math.fsum([*every, *(-value for value in own)]) / others
