"""Groups by agent and turn. The paper samples several answers to one prompt at every turn; here whole episodes are
sampled, so peers share the seed and the turn number but not the preceding dialogue.

Order: the whole batch is scored, then folded into the baselines. Cold start: the fallback's baseline is 0.
"""

from __future__ import annotations

from collections.abc import Hashable

from legos_envs.records import Episode, Trajectory
from legos_train.credit.assigner import (
    DECAY,
    GAMMA,
    SINGLETON,
    Decay,
    Gamma,
    Singleton,
    Std,
    check_unit,
    group_of,
    method,
    returns_to_go,
)
from legos_train.credit.group import MeanCredit


@method
class AgentTurnCredit(MeanCredit):
    r"""Return-to-go of a turn, minus the group's mean for the same role and turn number.

    In a dialogue, different roles face different questions, and so does one role at different turns. A group that mixes
    them compares answers that are not comparable.

    $$A_t = G_t - \frac{1}{n} \sum_{j=1}^{n} G_t^{(j)} \qquad G_t = r_t + \gamma\,G_{t+1}$$

    The sum runs over the n episodes of the group in which the role took a turn t, counting its own turns from 0. With
    `std` the difference is divided by their standard deviation. A turn without peers gets 0, or with
    `singleton = "rae"` its return-to-go minus a moving baseline.

    When: episodes of several turns, played in groups. On Leduc poker its average policy was ahead of that of `rae`,
    with KL (docs/credit.md).

    When not: games differ greatly in length. Late turns then have few peers, or none.

    Source: AT-GRPO, Zhao et al. 2025, "Stronger together", arXiv 2510.11062; there several answers are sampled at every
    turn, here whole episodes.

    Args:
        std: divide by the population standard deviation of the peers.
        gamma: in [0, 1].
        singleton: `"zero"` or `"rae"`, for a turn without peers.
        decay: of the fallback's moving baseline, which averages the trajectories' mean return-to-go.

    Raises:
        ValueError: a value is out of range.
    """

    name = "agent_turn"
    groups = True

    def __init__(
        self, *, std: Std = False, gamma: Gamma = GAMMA, singleton: Singleton = SINGLETON, decay: Decay = DECAY
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.gamma = check_unit("gamma", gamma)

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> tuple[Hashable, ...]:
        return (episode.env_id, group_of(episode, "credit 'turn_level'"), trajectory.role)

    def targets(self, trajectory: Trajectory) -> list[float]:
        """The return-to-go of each turn."""
        targets: list[float] = returns_to_go(trajectory, self.gamma).tolist()
        return targets
