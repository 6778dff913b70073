"""Normalised per role over the batch: `per_role_norm` for whole returns, `turn_level` for returns-to-go.

Both normalise by env id and role over the whole batch, so they need no groups, and both always divide: the division is
the method. Where all returns of a role are equal, the advantages are 0, as for a role seen only once.

Order: the batch alone decides. Cold start: none; nothing is remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from legos_envs.records import Episode, Trajectory
from legos_train.credit.assigner import (
    GAMMA,
    Advantages,
    Gamma,
    Stateless,
    check_unit,
    method,
    moments,
    returns_to_go,
    trained,
)
from legos_train.credit.rae import Key


class _RoleNorm(Stateless):
    scale_free = True

    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        """What is normalised: (1,) for the trajectory or (turns,)."""
        raise NotImplementedError

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        seen: dict[Key, list[float]] = defaultdict(list)
        rows: list[list[tuple[Trajectory, NDArray[np.float64]]]] = []
        for episode in episodes:
            row = [(trajectory, self.targets(trajectory)) for trajectory in trained(episode)]
            for trajectory, targets in row:
                seen[episode.env_id, trajectory.role].extend(targets.tolist())
            rows.append(row)
        scales = {key: moments(values) for key, values in seen.items()}
        out: list[Advantages] = []
        for episode, row in zip(episodes, rows, strict=True):
            advantages: Advantages = {}
            for trajectory, targets in row:
                centre, spread = scales[episode.env_id, trajectory.role]
                advantages[trajectory.agent] = np.zeros(len(trajectory.turns)) + (targets - centre) / spread
            out.append(advantages)
        return out


@method
class PerRoleNormCredit(_RoleNorm):
    r"""Return, normalised to mean 0 and standard deviation 1 over the trajectories of its role in the batch.

    Roles with larger payoffs would otherwise dominate the gradient, and one mean over all seats of a zero-sum match is
    0.

    $$A = \frac{R - \mathrm{mean}}{\mathrm{std} + 10^{-6}}$$

    Mean and population standard deviation are over all trajectories of the environment and role in the batch. All turns
    of a trajectory get the same advantage.

    When: roles are paid on different scales, and there are no groups. With the bundled model and KL its weight average
    had by far the lowest NashConv on the lopsided game, from two seeds (docs/credit.md).

    When not: nearly all returns of a role are equal. The division then amplifies what little difference is left. It
    also changes the effective KL weight of each seat: with tabular policies, its last policy on the lopsided game was
    worse than that of `rae`.

    Source: "Dr. MAS", arXiv 2602.08847.
    """

    name = "per_role_norm"

    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        return np.array([trajectory.total])


@method
class TurnLevelCredit(_RoleNorm):
    r"""Return-to-go of a turn, normalised to mean 0 and standard deviation 1 over the turns of its role in the batch.

    A turn gets no credit for what was earned before it.

    $$A_t = \frac{G_t - \mathrm{mean}}{\mathrm{std} + 10^{-6}} \qquad G_t = r_t + \gamma\,G_{t+1}$$

    Mean and population standard deviation are over all turns of the environment and role in the batch: sum first, then
    normalise.

    When: rewards come during the game and not only at its end.

    When not: there is one reward at the end. With gamma 1 and games of equal length it is then `per_role_norm`;
    otherwise it differs only in counting longer games more often.

    Source: Yuan et al. 2025, "MARSHAL", arXiv 2510.15414.

    Args:
        gamma: in [0, 1].

    Raises:
        ValueError: gamma is out of range.
    """

    name = "turn_level"

    def __init__(self, gamma: Gamma = GAMMA) -> None:
        self.gamma = check_unit("gamma", gamma)

    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        return returns_to_go(trajectory, self.gamma)
