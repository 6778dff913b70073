"""The numbers of a step's episodes. Shown while a run works by dashboard.py, kept by metrics_file.py."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from legos_envs import Episode
from legos_train.rollout import filters


def episode_metrics(episodes: Sequence[Episode], *, by_env: bool = False) -> dict[str, Any]:
    """Reward by role, how episodes ended, and the length and variety of what was said.

    `invalid_rate` is the share of trained actions with a list of legal ones that stated none of them, by exact text;
    `prompts` the number of distinct prompts. `reward_error` is the standard error of a role's mean, `win_rate` the
    learner's share of the games it won in a role where two compete, a draw counting half. `by_env`: roles are called
    `ENV/ROLE`, for runs with several envs.
    """
    rewards: dict[str, list[float]] = {}
    clusters: dict[str, list[Hashable]] = {}
    points: dict[str, list[float]] = {}
    outcomes: Counter[str] = Counter()
    prompts = set()
    tokens = actions = listed = invalid = unscored = 0
    for number, episode in enumerate(episodes):
        outcomes[episode.outcome or "ended"] += 1
        for agent, won in _won(episode).items():
            role = episode.trajectories[agent].role
            points.setdefault(f"{episode.env_id}/{role}" if by_env else role, []).append(won)
        for trajectory in episode.trajectories.values():
            if "unscored" in (episode.outcome, trajectory.info.get("ending")):
                unscored += 1
                continue  # its zero is no return
            role = f"{episode.env_id}/{trajectory.role}" if by_env else trajectory.role
            rewards.setdefault(role, []).append(trajectory.total)
            clusters.setdefault(role, []).append(number if episode.group is None else (episode.group,))
            for turn in trajectory.turns:
                if turn.action_tokens is None or not (trajectory.trainable or "left_out" in trajectory.info):
                    continue
                actions += 1
                tokens += len(turn.action_tokens)
                prompts.add(hash(tuple(turn.prompt_tokens or ())))
                if turn.legal_actions:
                    listed += 1
                    invalid += turn.action not in turn.legal_actions
    return {
        "reward": {role: float(np.mean(values)) for role, values in sorted(rewards.items())},
        "reward_error": {role: standard_error(values, clusters[role]) for role, values in sorted(rewards.items())},
        "win_rate": {role: float(np.mean(values)) for role, values in sorted(points.items())},
        "outcomes": dict(sorted(outcomes.items())),
        "episodes": len(episodes),
        "unscored_trajectories": unscored,
        "turns": actions,
        "tokens_per_turn": tokens / actions if actions else 0.0,
        "prompts": len(prompts),
        "invalid_rate": invalid / listed if listed else 0.0,
    }


def standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """The standard error of a mean of values that are independent only between clusters (Liang and Zeger, 1986).

    Episodes of one group share a seed, and solvers of one episode a table; so groups, or else episodes, are the
    clusters. None with fewer than two of them.
    """
    mean = math.fsum(values) / len(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    count = len(sums)
    if count < 2:
        return None
    return math.sqrt(count / (count - 1) * math.fsum(s * s for s in sums.values())) / len(values)


def _won(episode: Episode) -> dict[str, float]:
    """1, 0.5 or 0 for each seat of the learner at a table where two compete, by who got more."""
    if episode.outcome == "unscored":
        return {}
    tables: dict[str, list[str]] = {}
    for trajectory in filters.competing(episode):
        tables.setdefault(trajectory.parent, []).append(trajectory.agent)
    out: dict[str, float] = {}
    for seats in tables.values():
        if len(seats) != 2:
            continue
        for mine, theirs in (seats, seats[::-1]):
            own, other = episode.trajectories[mine], episode.trajectories[theirs].total
            if "member" not in own.info:
                even = math.isclose(own.total, other, rel_tol=1e-9, abs_tol=1e-9)
                out[mine] = 0.5 if even else float(own.total > other)
    return out
