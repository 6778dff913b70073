"""Advantages relative to peers: GRPO and hierarchical GRPO.

GRPO (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, section 4.1) subtracts the mean return of the group and
divides by its standard deviation. Liu et al. 2025 ("Understanding R1-Zero-like training", arXiv 2503.20783) show that
the division favours groups that are almost always right or wrong, so it is off unless asked for.

Both methods here do the same once it is known who a trajectory's peers are:

* `GRPO`: the trajectories of the same role in the episodes of one group. With `per_role=False` all trained
  trajectories of the group; in a zero-sum match that mean is exactly 0, which is no baseline at all.
* `HierarchicalGRPO`: inside one episode, the trajectories with the same role and the same parent in the agent path
  (`problem_0/solver_0` and `problem_0/solver_1`), at any depth. Agents without a parent are compared with the same role
  over the episode's group, or over the whole batch with `root_peers="batch"`.

A trajectory without any peer has nothing to be compared with. `singleton="zero"` gives it the advantage 0: it teaches
nothing. `singleton="rae"` falls back to `R - b` with the moving baseline of `RAE`, into which every trained return of
each batch is folded afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from legos_envs.records import Episode, Trajectory

from .common import Advantages, check_choice, check_method, mean, trained
from .rae import Baselines, Key

EPSILON = 1e-6  # added to the standard deviation, so that a peer set of equal returns gives 0


class _PeerCredit:
    """Return minus the mean of the peers (itself among them), the same for every turn of the trajectory."""

    name: str

    def __init__(self, *, std: bool, singleton: str, decay: float) -> None:
        self.std = std
        self.singleton = check_choice("singleton", singleton, ("zero", "rae"))
        self.baselines = Baselines(decay)

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        """Trajectories with equal keys are peers. `index` is the place of the episode in the batch."""
        raise NotImplementedError

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Raises ValueError when a group is needed and an episode has none."""
        returns: dict[Hashable, list[float]] = defaultdict(list)
        seen: dict[Key, list[float]] = defaultdict(list)
        placed: list[list[tuple[Trajectory, Hashable]]] = []
        for index, episode in enumerate(episodes):
            row = [(trajectory, self.peers(index, episode, trajectory)) for trajectory in trained(episode)]
            placed.append(row)
            for trajectory, key in row:
                returns[key].append(trajectory.total)
                seen[episode.env_id, trajectory.role].append(trajectory.total)
        out: list[Advantages] = []
        for episode, row in zip(episodes, placed, strict=True):
            advantages: Advantages = {}
            for trajectory, key in row:
                value = self._centred(episode.env_id, trajectory, returns[key])
                advantages[trajectory.agent] = np.full(len(trajectory.turns), value)
            out.append(advantages)
        if self.singleton == "rae":
            self.baselines.fold(seen)
        return out

    def _centred(self, env_id: str, trajectory: Trajectory, returns: list[float]) -> float:
        if len(returns) == 1:
            return trajectory.total - self.baselines(env_id, trajectory.role) if self.singleton == "rae" else 0.0
        centre = mean(returns)
        value = trajectory.total - centre
        if self.std:
            value /= mean([(other - centre) ** 2 for other in returns]) ** 0.5 + EPSILON
        return value

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name, "baselines": self.baselines.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        self.baselines.load_state_dict(state["baselines"])


def _group(episode: Episode, instead: str) -> int | str:
    if episode.group is None:
        raise ValueError(
            f"an episode of {episode.env_id} (seed {episode.seed}) has no group, so there is nothing to compare it "
            f"with; start several episodes per seed with the same `group`, or use {instead}"
        )
    return episode.group


class GRPO(_PeerCredit):
    """Group-relative advantages. `std` divides by the population standard deviation; `per_role` as in the module text.

    `decay` only matters with `singleton="rae"`.
    """

    name = "grpo"

    def __init__(
        self, *, std: bool = False, per_role: bool = True, singleton: str = "zero", decay: float = 0.95
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.per_role = per_role

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        group = _group(episode, "credit 'rae'")
        return (episode.env_id, group, trajectory.role if self.per_role else None)


class HierarchicalGRPO(_PeerCredit):
    """Peers are siblings in the tree of agents; see the module text. `root_peers` is `"group"` or `"batch"`."""

    name = "hierarchical_grpo"

    def __init__(
        self, *, std: bool = False, root_peers: str = "group", singleton: str = "zero", decay: float = 0.95
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.root_peers = check_choice("root_peers", root_peers, ("group", "batch"))

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        if trajectory.parent:
            return ("episode", index, trajectory.parent, trajectory.role)
        if self.root_peers == "batch":
            return ("batch", episode.env_id, trajectory.role)
        return ("group", episode.env_id, _group(episode, "root_peers='batch'"), trajectory.role)
