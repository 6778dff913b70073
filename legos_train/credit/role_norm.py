"""Normalised per role over the batch: `per_role_norm` for whole returns, `turn_level` for returns-to-go.

`per_role_norm` (Dr. MAS, arXiv 2602.08847): `A = (R - mean) / std` with the mean and standard deviation of the role.
Roles with larger payoffs would otherwise own the gradient, and one mean over all seats of a zero-sum match is 0.

`turn_level` (MARSHAL, Yuan et al. 2025, arXiv 2510.15414): every turn is credited with what came after it,
`G_t = r_t + gamma * G_{t+1}`, and these sums are normalised over all turns of the role ("sum, then normalise").
Rewards from before a turn do not count for it. With one reward at the end, gamma = 1 and equally long games it is
`per_role_norm`.

Both take the role per env id over the whole batch, so no groups are needed, and both always divide: the division is
the method. Where all returns of a role are equal, the advantages are 0; so is that of a role seen once.

Order: the batch alone decides. Cold start: none; nothing is remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from legos_envs.records import Episode, Trajectory

from .common import Advantages, Stateless, check_unit, moments, returns_to_go, trained
from .rae import Key


class _RoleNorm(Stateless):
    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        """What is normalised: (1,) for the trajectory or (turns,)."""
        raise NotImplementedError

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`."""
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


class PerRoleNormCredit(_RoleNorm):
    """`(R - mean) / std` over the trajectories of the role in the batch, the same for every turn."""

    name = "per_role_norm"

    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        return np.array([trajectory.total])


class TurnLevelCredit(_RoleNorm):
    """`(G_t - mean) / std` over the turns of the role in the batch; `gamma` in [0, 1]."""

    name = "turn_level"

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma = check_unit("gamma", gamma)

    def targets(self, trajectory: Trajectory) -> NDArray[np.float64]:
        return returns_to_go(trajectory, self.gamma)
