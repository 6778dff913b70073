"""Filters: which episodes to replay, and which to train on. Pure functions of finished episodes.

Draws are detected by returns, never by advantages: once a baseline has moved from 0, a drawn game has an advantage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from legos_envs.records import Episode, Trajectory
from legos_envs.table import keyed_generator
from legos_train.rollout.jobs import NOT_FINITE, NOT_TRAINED_HERE, TAKEN_BACK, UNSCORED
from legos_train.rollout.players import actors

R = TypeVar("R")
Kept = Literal["all", "winners", "success", "positive"]
"""Which trajectories of an episode are trained on."""
VOID = (NOT_FINITE, TAKEN_BACK, UNSCORED)
"""Reasons why a trajectory's return is meaningless."""


def competing(episode: Episode) -> list[Trajectory]:
    """The competing trajectories: trained ones, those of league opponents (`info["member"]`), those that a filter has
    removed (`info["left_out"]`) and those of seats that the run does not train. Not judges.
    """
    every = episode.trajectories.values()
    return [
        t
        for t in every
        if t.trainable or "member" in t.info or "left_out" in t.info or t.info.get("untrained") in NOT_TRAINED_HERE
    ]


def is_learners(trajectory: Trajectory) -> bool:
    """Whether the learner played it in a trained seat, even if the episode was void or a filter removed it. False for
    judges and opponents.
    """
    void = trajectory.info.get("untrained") in (UNSCORED, TAKEN_BACK)
    own = trajectory.info.get("player", actors.POLICY) == actors.POLICY
    return trajectory.trainable or "left_out" in trajectory.info or (void and own)


def is_draw(episode: Episode) -> bool:
    """Whether all who competed got the same return (up to rounding). A single agent cannot draw, and an episode that
    could not be scored is not a draw.
    """
    returns = [t.total for t in competing(episode)]
    if len(returns) < 2 or episode.outcome == "unscored":
        return False
    return max(returns) - min(returns) <= 1e-9 * max(1.0, *map(abs, returns))


def keep_draws(episodes: Sequence[Episode], share: float, rng: np.random.Generator) -> list[Episode]:
    """The episodes, in order, without a randomly chosen share of the drawn ones.

    Args:
        episodes: of one step.
        rng: chooses among the drawn ones.
        share: share of the drawn episodes to drop (`filter.draws`), in [0, 1]. A fractional number is rounded at
            random, so that it is right on average.

    Raises:
        ValueError: the share is out of range.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of draws to leave out must be from 0 to 1; got {share!r}")
    drawn = [i for i, episode in enumerate(episodes) if is_draw(episode)]
    count = min(len(drawn), math.floor(share * len(drawn) + rng.random()))
    out = set(rng.permutation(drawn)[:count].tolist())
    return [episode for i, episode in enumerate(episodes) if i not in out]


def keep_best(episodes: Sequence[Episode], rule: str) -> int:
    r"""Selects what to train on: all trajectories, those of winners, successful ones, or those with a return above 0.

    The others are removed from training after credit assignment: baselines and group means see the losers too.
    League opponents count when the best return is determined.

    When: with the loss `sft`, to imitate what went well (training on survivors), or to learn only from wins.

    When not: losses should teach something. With this filter, an action that led to a loss is not made less likely.

    Source: rejection sampling, as in STaR, arXiv 2203.14465.

    Args:
        episodes: of one step; trajectories in them are marked.
        rule: `all` removes none; `winners` those without the best return of their episode, and all if none was
            better than another; `success` those without a right answer, or with a return of 0 or less where the
            environment does not say what is right; `positive` those with a return of 0 or less, so wrong answers that
            were rewarded for their format stay.

    Returns:
        How many were removed: they have `trainable = False` and `info["left_out"]`.

    Raises:
        ValueError: the rule is unknown.
    """
    if rule not in get_args(Kept):
        raise ValueError(f"filter.keep must be all, winners, success or positive; got {rule!r}")
    count = 0
    for episode in [] if rule == "all" else episodes:
        returns = [t.total for t in competing(episode)]
        best, drawn = max(returns, default=0.0), len(returns) < 2 or is_draw(episode)
        for trajectory in episode.trajectories.values():
            kept = trajectory.total >= best and not drawn if rule == "winners" else trajectory.total > 0
            if rule == "success" and isinstance(right := trajectory.info.get("correct"), bool):
                kept = right
            if trajectory.trainable and not kept:
                trajectory.trainable = False
                trajectory.info["left_out"] = rule
                count += 1
    return count


def drawn_again(requests: Sequence[R], episodes: Sequence[Episode], attempt: int) -> dict[int, R]:
    """The requests to play again: index -> request with a new seed, which depends only on the old one and the attempt.

    Episodes of one group share a seed and are compared with each other: the group is replayed as a whole, and only
    if all of it was drawn, since a group with one decided game is informative.

    Args:
        episodes: one for each request.
        requests: dataclasses with `seed` (int) and, if they have it, `group`.
        attempt: 1 for the first retry.

    Raises:
        ValueError: the lengths differ, or a request has no seed yet.
    """
    if len(requests) != len(episodes):
        raise ValueError(f"one episode per request is needed; got {len(requests)} requests, {len(episodes)} episodes")
    groups: dict[Any, list[int]] = {}
    for i, request in enumerate(requests):
        group = getattr(request, "group", None)
        groups.setdefault(("alone", i) if group is None else ("group", group), []).append(i)
    again: dict[int, R] = {}
    for group in groups.values():
        if all(is_draw(episodes[i]) for i in group):
            again |= {i: _reseeded(requests[i], attempt) for i in group}
    return dict(sorted(again.items()))


def retry(
    requests: Sequence[R], play: Callable[[Sequence[R]], Sequence[Episode]], retries: int
) -> tuple[list[Episode], int]:
    """Plays all requests, then the drawn ones again on fresh seeds, up to `retries` times (`filter.draw_retries`).

    Returns:
        For each request, in order, the last episode played; and the total number of replayed episodes.
    """
    episodes, count = list(play(requests)), 0
    for attempt in range(1, retries + 1):
        again = drawn_again(requests, episodes, attempt)
        if not again:
            break
        for i, episode in zip(again, play(list(again.values()))):
            episodes[i] = episode
        count += len(again)
    return episodes, count


def _reseeded(request: R, attempt: int) -> R:
    seed = getattr(request, "seed", None)
    if not isinstance(seed, int):
        raise ValueError(f"a request needs its seed before it can be played again; got seed {seed!r}")
    fresh = int(keyed_generator(seed, f"draw_retry/{attempt}").integers(2**31))
    return dataclasses.replace(request, seed=fresh)  # type: ignore[type-var]


def is_not_finite(episode: Episode) -> bool:
    """Whether a reward was not finite, so that the episode was left out of training."""
    return any(t.info.get("untrained") == NOT_FINITE for t in episode.trajectories.values())
