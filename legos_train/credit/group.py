"""Advantages relative to peers: GRPO and hierarchical GRPO. `rloo.py` and `maxrl.py` build on the same frame.

GRPO (Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, section 4.1) subtracts the mean return of the group and
divides by its standard deviation. Liu et al. 2025 ("Understanding R1-Zero-like training", arXiv 2503.20783) show that
the division favours groups that are almost always right or wrong, so it is off unless asked for.

All do the same once it is known who a trajectory's peers are:

* `GRPOCredit`: the trajectories of the same role in the episodes of one group. With `per_role=False` all trained
  trajectories of the group; in a zero-sum match that mean is exactly 0, which is no baseline at all.
* `HierarchicalGRPOCredit`: inside one episode, the trajectories with the same role and the same parent in the agent
  path (`problem_0/solver_0` and `problem_0/solver_1`), at any depth. In a tournament every place under `match_k` may be
  alone with its role; `peers="role"` compares a role across the sibling tables (`match_0/first`, `match_1/first`).
  Agents without a parent are compared with the same role over the episode's group, or over the whole batch with
  `root_peers="batch"`.

A trajectory without any peer has nothing to be compared with. `singleton="zero"` gives it the advantage 0: it teaches
nothing. `singleton="rae"` falls back to `R - b` with the moving baseline of `RAECredit`.

Order: the whole batch is scored, then, with `singleton="rae"`, every trained return is folded into the baselines.
Cold start: none for peers; the fallback's baseline is 0 before the first return of a role.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from legos_envs.records import Episode, Trajectory

from .common import Advantages, check_choice, check_method, group_of, mean, moments, trained
from .rae import Baselines, Key


class PeerCredit:
    """One advantage per trajectory, from its return and those of its peers, the same for every turn."""

    name: str

    def __init__(self, *, singleton: str, decay: float) -> None:
        self.singleton = check_choice("singleton", singleton, ("zero", "rae"))
        self.baselines = Baselines(decay)

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        """Trajectories with equal keys are peers. `index` is the place of the episode in the batch."""
        raise NotImplementedError

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        """The advantage of the return `total`; None when nothing can be compared.

        `every`: the returns of all peers, itself among them; `own`: those of them in the same episode.
        """
        raise NotImplementedError

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Raises ValueError when a group is needed and an episode has none."""
        every: dict[Hashable, list[float]] = defaultdict(list)
        own: dict[tuple[int, Hashable], list[float]] = defaultdict(list)
        seen: dict[Key, list[float]] = defaultdict(list)
        placed: list[list[tuple[Trajectory, float, Hashable]]] = []
        for index, episode in enumerate(episodes):
            row = []
            for trajectory in trained(episode):
                total, key = trajectory.total, self.peers(index, episode, trajectory)
                row.append((trajectory, total, key))
                every[key].append(total)
                own[index, key].append(total)
                seen[episode.env_id, trajectory.role].append(total)
            placed.append(row)
        out: list[Advantages] = []
        for index, (episode, row) in enumerate(zip(episodes, placed, strict=True)):
            advantages: Advantages = {}
            for trajectory, total, key in row:
                value = self.relative(total, every[key], own[index, key])
                if value is None:
                    alone = self.singleton == "rae"
                    value = total - self.baselines(episode.env_id, trajectory.role) if alone else 0.0
                advantages[trajectory.agent] = np.full(len(trajectory.turns), value)
            out.append(advantages)
        if self.singleton == "rae":
            self.baselines.fold(seen)
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name, "baselines": self.baselines.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        self.baselines.load_state_dict(state["baselines"])


class _MeanCredit(PeerCredit):
    """Return minus the mean of the peers, itself among them."""

    def __init__(self, *, std: bool, singleton: str, decay: float) -> None:
        super().__init__(singleton=singleton, decay=decay)
        self.std = std

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        if len(every) == 1:
            return None
        if not self.std:
            return total - mean(every)
        centre, spread = moments(every)
        return (total - centre) / spread


class GRPOCredit(_MeanCredit):
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
        group = group_of(episode, "credit 'rae'")
        return (episode.env_id, group, trajectory.role if self.per_role else None)


class HierarchicalGRPOCredit(_MeanCredit):
    """Peers are siblings in the tree of agents; see the module text.

    `peers` is `"table"` (the same table) or `"role"` (also the tables beside it), `root_peers` `"group"` or `"batch"`.
    """

    name = "hierarchical_grpo"

    def __init__(
        self,
        *,
        std: bool = False,
        peers: str = "table",
        root_peers: str = "group",
        singleton: str = "zero",
        decay: float = 0.95,
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.across = check_choice("peers", peers, ("table", "role")) == "role"
        self.root_peers = check_choice("root_peers", root_peers, ("group", "batch"))

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> Hashable:
        if trajectory.parent:
            depth = trajectory.agent.count("/")
            table = trajectory.parent.rpartition("/")[0] if self.across else trajectory.parent
            return ("episode", index, depth, table, trajectory.role)
        if self.root_peers == "batch":
            return ("batch", episode.env_id, trajectory.role)
        return ("group", episode.env_id, group_of(episode, "root_peers='batch'"), trajectory.role)
