"""Advantages relative to peers: GRPO and hierarchical GRPO. `rloo.py` builds on the same frame.

They differ only in who a trajectory's peers are. A trajectory without peers cannot be compared: `singleton="zero"`
gives it the advantage 0, so it teaches nothing; `singleton="rae"` falls back to `R - b` with the moving baseline of
`RAECredit`.

Order: the whole batch is scored, then, with `singleton="rae"`, every trained return is folded into the baselines.
Cold start: none for peers; the fallback's baseline is 0 before the first return of a role.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from legos_envs.records import Episode, Trajectory
from legos_train.credit.assigner import (
    DECAY,
    SINGLETON,
    Advantages,
    Decay,
    Singleton,
    Std,
    check_choice,
    group_of,
    mean,
    method,
    moments,
    trained,
)
from legos_train.credit.rae import Baselines, Key, RemembersBaselines

Peers = Literal["table", "role"]
RootPeers = Literal["group", "batch"]


class PeerCredit(RemembersBaselines):
    """Advantages from comparison with peers: one for each trajectory or, with `targets` overridden, for each turn."""

    name: str

    def __init__(self, *, singleton: str, decay: float) -> None:
        self.singleton = check_choice("singleton", singleton, Singleton)
        self.baselines = Baselines(decay)

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> tuple[Hashable, ...]:
        """Trajectories with equal keys are peers: by default of one role in the episodes of a group.

        `index` is the position of the episode in the batch.
        """
        return (episode.env_id, group_of(episode, "credit 'rae'"), trajectory.role)

    def targets(self, trajectory: Trajectory) -> list[float]:
        """The values to compare: the return, for all turns alike; or a number for each turn, by turn number."""
        return [trajectory.total]

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        """The advantage of the target `total`; None if there is nothing to compare it with.

        `every`: the targets of all peers, including itself; `own`: those in the same episode.
        """
        raise NotImplementedError

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`. Raises ValueError when a group is needed and an episode has none."""
        every: dict[Hashable, list[float]] = defaultdict(list)
        own: dict[tuple[int, Hashable], list[float]] = defaultdict(list)
        seen: dict[Key, list[float]] = defaultdict(list)
        rows: list[list[tuple[Trajectory, list[float], tuple[Hashable, ...]]]] = []
        for index, episode in enumerate(episodes):
            rows.append([])
            for trajectory in trained(episode):
                targets, peers = self.targets(trajectory), self.peers(index, episode, trajectory)
                rows[-1].append((trajectory, targets, peers))
                for number, target in enumerate(targets):
                    every[peers, number].append(target)
                    own[index, (peers, number)].append(target)
                seen[episode.env_id, trajectory.role].append(mean(targets))
        out: list[Advantages] = [{} for _ in episodes]
        for index, (episode, row) in enumerate(zip(episodes, rows, strict=True)):
            for trajectory, targets, peers in row:
                alone = self.baselines(episode.env_id, trajectory.role) if self.singleton == "rae" else None
                values = np.zeros(len(targets))
                for number, target in enumerate(targets):
                    value = self.relative(target, every[peers, number], own[index, (peers, number)])
                    if value is None and alone is not None:
                        value = target - alone
                    values[number] = value or 0.0
                out[index][trajectory.agent] = values if len(values) > 1 else np.full(len(trajectory.turns), values[0])
        if self.singleton == "rae":
            self.baselines.fold(seen)
        return out


class MeanCredit(PeerCredit):
    """Return minus the mean of the peers, including itself."""

    def __init__(self, *, std: bool, singleton: str, decay: float) -> None:
        super().__init__(singleton=singleton, decay=decay)
        self.std = self.scale_free = std

    def relative(self, total: float, every: Sequence[float], own: Sequence[float]) -> float | None:
        if len(every) == 1:
            return None
        if not self.std:
            return total - mean(every)
        centre, spread = moments(every)
        return (total - centre) / spread


@method
class GRPOCredit(MeanCredit):
    r"""Return minus the mean return of the role in its group, the episodes started from one seed.

    A group plays the same deal several times, so the luck of the deal is part of the mean and is subtracted.

    $$A = R - \frac{1}{n} \sum_{j=1}^{n} R_j$$

    The sum runs over the n trajectories of the same role in the episodes of the group, including the trajectory itself.
    With `std` the difference is divided by their standard deviation plus 1e-6. With `per_role = false` the sum runs
    over all trained trajectories of the group. A trajectory without peers gets 0, or with `singleton = "rae"` what
    `rae` would give it.

    When: you can afford several episodes per deal. On Leduc poker it ended nearer to the equilibrium than `rae` in
    three of four columns of the comparison (docs/credit.md).

    When not: `per_role = false` in a zero-sum match, where the mean over all seats is exactly 0, which is no baseline
    at all. `std` favours groups that are almost always right or almost always wrong (arXiv 2503.20783), so it is off.

    Source: Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, section 4.1; without the division as in Liu et al. 2025,
    "Understanding R1-Zero-like training", arXiv 2503.20783.

    Args:
        std: divide by the population standard deviation of the group.
        per_role: compare within a role; off: all trained seats of the group together (a joint mean).
        singleton: `"zero"` or `"rae"`, for a trajectory without peers.
        decay: of the fallback's moving baseline.

    Raises:
        ValueError: a value is out of range.
    """

    name = "grpo"
    groups = True

    def __init__(
        self, *, std: Std = False, per_role: bool = True, singleton: Singleton = SINGLETON, decay: Decay = DECAY
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.per_role = per_role

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> tuple[Hashable, ...]:
        env_id, group, role = super().peers(index, episode, trajectory)
        return (env_id, group, role if self.per_role else None)


@method
class HierarchicalGRPOCredit(MeanCredit):
    r"""Return minus the mean return of its siblings in the tree of agents, within one episode.

    Environments with tables inside tables give agents paths: `problem_0/solver_0` and `problem_0/solver_1` answered the
    same problem, and are compared only with each other.

    $$A = R - \frac{1}{n} \sum_{j \in S} R_j$$

    S are the n trajectories of the episode with the same role at the same table, at any depth. With `peers = "role"`
    neighbouring tables count too (`match_0/first` and `match_1/first`). Agents at the root, outside any table, are
    compared with their role in the episode's group, or in the whole batch with `root_peers = "batch"`.

    When: one episode holds several answers to one question: `ProposerSolver-v0`, `SPICE-v0`. In a tournament, use
    `peers = "role"`, since each seat of a match may be the only one with its role.

    When not: environments without tables. All agents are at the root there, and this is `grpo`.

    Source: GRPO (arXiv 2402.03300) with peers from the tree of agents; the tree is this library's own, not a paper's.

    Args:
        std: divide by the population standard deviation of the siblings.
        peers: compare agents with the same role at one table (`table`), or also at neighbouring tables (`role`).
            Tournaments need `role`: a seat of a match may be the only one with its role.
        root_peers: what agents outside any table are compared with: the episode's group, or the whole batch.
        singleton: `"zero"` or `"rae"`, for a trajectory without peers.
        decay: of the fallback's moving baseline.

    Raises:
        ValueError: a value is out of range.
    """

    name = "hierarchical_grpo"

    def __init__(
        self,
        *,
        std: Std = False,
        peers: Peers = "table",
        root_peers: RootPeers = "group",
        singleton: Singleton = SINGLETON,
        decay: Decay = DECAY,
    ) -> None:
        super().__init__(std=std, singleton=singleton, decay=decay)
        self.across = check_choice("peers", peers, Peers) == "role"
        self.root_peers = check_choice("root_peers", root_peers, RootPeers)
        self.groups = root_peers == "group" and peers == "table"  # else peers are found in the batch or the episode

    def peers(self, index: int, episode: Episode, trajectory: Trajectory) -> tuple[Hashable, ...]:
        if trajectory.parent:
            depth = trajectory.agent.count("/")
            table = trajectory.parent.rpartition("/")[0] if self.across else trajectory.parent
            return ("episode", index, depth, table, trajectory.role)
        if self.root_peers == "batch":
            return ("batch", episode.env_id, trajectory.role)
        return ("group", episode.env_id, group_of(episode, "root_peers='batch'"), trajectory.role)
