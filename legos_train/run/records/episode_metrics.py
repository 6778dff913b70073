"""Metrics of a step's episodes. dashboard.py shows them during a run, metrics_file.py stores them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np

from legos_envs import Episode, parsing
from legos_train.evaluation import outcomes
from legos_train.rollout import filters


def episode_metrics(
    episodes: Sequence[Episode], *, by_env: bool = False, success: Collection[str] = ()
) -> dict[str, Any]:
    """Reward by role, how episodes ended, and the length and variety of answers.

    `reward` is the learner's in roles that members of a league play too.

    `invalid_rate` is the share of games (episodes, or matches inside them) in which a seat of the learner used up its
    retries; `unscored_rate` the share of episodes that could not be scored; `illegal_rate` the share of the learner's
    actions, given a list of legal ones, that named none of them. A rate without anything to count is None. `prompts`
    is the number of distinct prompts, `reward_error` the standard error of a role's mean. `win_rate` is the learner's
    share of won games in a role where two compete, a draw counting half; in the envs of `success`, whose seats have
    returns on different scales, `success_rate` by role instead.

    Args:
        episodes: the episodes of one step.
        by_env: roles are named `ENV/ROLE`, for runs with several envs.
        success: the envs whose returns cannot be compared between seats, see `outcomes.competitive`.
    """
    rewards: dict[str, list[tuple[float, Hashable]]] = {}
    members: dict[str, list[tuple[float, Hashable]]] = {}  # of a league, in seats that the learner may have too
    points: dict[str, list[float]] = {}
    succeeded: dict[str, list[float]] = {}
    endings: Counter[str] = Counter()
    prompts = set()
    read: set[int] = set()  # ids of prompts, which many turns of the episodes share
    broken: list[bool] = []
    tokens = actions = listed = illegal = unscored = 0
    for number, episode in enumerate(episodes):
        endings[episode.outcome or "ended"] += 1
        broken += _broken(episode)
        apart, bad = episode.env_id in success, filters.is_not_finite(episode)
        for agent, won in (_succeeded(episode) if apart else _won(episode)).items():
            role = episode.trajectories[agent].role
            (succeeded if apart else points).setdefault(f"{episode.env_id}/{role}" if by_env else role, []).append(won)
        for trajectory in episode.trajectories.values():
            if "unscored" in (episode.outcome, trajectory.info.get("ending")):
                unscored += 1
            elif not bad:  # an unscored zero is not a return
                role = f"{episode.env_id}/{trajectory.role}" if by_env else trajectory.role
                cluster = number if episode.group is None else (episode.group,)
                (members if "member" in trajectory.info else rewards).setdefault(role, []).append(
                    (trajectory.total, cluster)
                )
            for turn in trajectory.turns if filters.is_learners(trajectory) else ():
                if turn.action_tokens is None:
                    continue
                actions += 1
                tokens += len(turn.action_tokens)
                if id(turn.prompt_tokens) not in read:
                    read.add(id(turn.prompt_tokens))
                    prompts.add(hash(tuple(turn.prompt_tokens or ())))
                if turn.legal_actions:
                    listed += 1
                    illegal += not parsing.states_one_of(turn.action, turn.legal_actions)
    returns = {role: tuple(zip(*found)) for role, found in sorted((members | rewards).items())}
    return {
        "reward": {role: float(np.mean(values)) for role, (values, _) in returns.items()},
        "reward_error": {role: standard_error(values, clusters) for role, (values, clusters) in returns.items()},
        "win_rate": {role: float(np.mean(values)) for role, values in sorted(points.items())},
        "success_rate": {role: float(np.mean(values)) for role, values in sorted(succeeded.items())},
        "outcomes": dict(sorted(endings.items())),
        "episodes": len(episodes),
        "unscored_trajectories": unscored,
        "unscored_rate": _share(endings["unscored"], len(episodes)),
        "turns": actions,
        "tokens_per_turn": _share(tokens, actions),
        "prompts": len(prompts),
        "invalid_rate": _share(sum(broken), len(broken)),
        "illegal_rate": _share(illegal, listed),
    }


def learner_metrics(
    episodes: Sequence[Episode], learners: Collection[str], success: Collection[str] = ()
) -> dict[str, dict[str, float | None]]:
    """For each learner, the results of its seats: `reward`, the mean return of those that were scored, and `win_rate`,
    the share of games won, a draw counting half, or in the envs of `success` the share of seats that succeeded.
    """
    rewards: dict[str, list[float]] = {name: [] for name in learners}
    points: dict[str, list[float]] = {name: [] for name in learners}
    for episode in episodes:
        if filters.is_not_finite(episode):
            continue
        won = (_succeeded if episode.env_id in success else _won)(episode)
        for agent, trajectory in episode.trajectories.items():
            name = trajectory.info.get("learner")
            if name not in rewards or "member" in trajectory.info:
                continue
            if "unscored" not in (episode.outcome, trajectory.info.get("ending")):
                rewards[name].append(trajectory.total)
            points[name] += [won[agent]] if agent in won else []
    means = {name: {"reward": rewards[name], "win_rate": points[name]} for name in learners}
    return {name: {key: float(np.mean(v)) if v else None for key, v in own.items()} for name, own in means.items()}


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


def _broken(episode: Episode) -> list[bool]:
    """For each table, whether a learner's seat used up its retries."""
    tables: dict[str, bool] = {}
    for agent, trajectory in episode.trajectories.items():
        if filters.is_learners(trajectory):
            bad = outcomes.ended_early(episode, agent) == "invalid"
            tables[trajectory.parent] = tables.get(trajectory.parent, False) or bad
    return list(tables.values())


def _succeeded(episode: Episode) -> dict[str, float]:
    """1 or 0 for each seat of the learner whose game was scored."""
    found = {
        agent: outcomes.outcome_of(episode, agent, seats=(agent,))
        for agent, trajectory in episode.trajectories.items()
        if filters.is_learners(trajectory)
    }
    return {agent: float(outcome == "win") for agent, outcome in found.items() if outcome != "unscored"}


def standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """The standard error of a mean of values that are independent only between clusters (Liang and Zeger, 1986).

    Episodes of one group share a seed, and solvers of one episode share a table; so groups, or else episodes, are the
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
    """1, 0.5 or 0 for each seat of the learner at a table where two compete, by the higher return."""
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
            if filters.is_learners(own):
                even = math.isclose(own.total, other, rel_tol=1e-9, abs_tol=1e-9)
                out[mine] = 0.5 if even else float(own.total > other)
    return out
