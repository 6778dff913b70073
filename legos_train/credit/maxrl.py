"""MaxRL: the likelihood of success instead of its probability.

Returns below 0 count as 0. A likelihood has no degrees of failure, and with mixed signs a mean near 0 would make the
quotient arbitrarily large and a negative mean would flip its sign. So the mean is never negative; where it is 0,
nothing succeeded, and all advantages are 0, since there is nothing to make more likely. A trajectory without a peer is
its own mean and gets 0 as well. Every advantage lies between -1 and n - 1, with n peers.

Order: the batch alone decides. Cold start: none; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from legos_envs.records import Trajectory
from legos_train.credit.assigner import Stateless, mean, method
from legos_train.credit.group import DECAY, SINGLETON, PeerCredit


@method
class MaxRLCredit(Stateless, PeerCredit):
    r"""Reward in units of the role's mean reward in the group: rare successes weigh more.

    For a reward of 0 or 1 the mean estimates the probability of success p. Dividing by it turns the gradient of p into
    that of log p, so a task that rarely succeeds counts for more than with `grpo`.

    $$A = \frac{r - \mathrm{mean}(r)}{\mathrm{mean}(r)} \qquad r = \max(R, 0)$$

    The mean is over the trajectories of the role in the group. Where nothing succeeded, all advantages are 0.

    When: rewards of 0 or 1, and tasks that seldom succeed, such as hard problems with a right answer.

    When not: games with losses, or penalties. A return below 0 counts as 0, so losing and drawing are the same. It was
    not run in the comparison of docs/credit.md.

    Source: "Maximum likelihood reinforcement learning", arXiv 2602.02710.
    """

    name = "maxrl"
    groups = True
    scale_free = True

    def __init__(self) -> None:
        super().__init__(singleton=SINGLETON, decay=DECAY)

    def targets(self, trajectory: Trajectory) -> list[float]:
        return [max(trajectory.total, 0.0)]

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        centre = mean(every)
        return (total - centre) / centre if centre > 0 else 0.0
