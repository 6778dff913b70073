"""A policy against an opponent with players that are already there: what training measures with, every few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from legos_train.evaluation.games import seeds_for
from legos_train.evaluation.intervals import bootstrap_interval
from legos_train.evaluation.outcomes import OUTCOMES, outcome_of

if TYPE_CHECKING:
    from legos_train.rollout import Player, Rollouts


def head_to_head(
    rollouts: Rollouts,
    env_id: str,
    seats: Sequence[str],
    policy: Player,
    opponent: Player,
    games: int,
    seed: int,
    *,
    others: Mapping[str, Player] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plays `games` games, the policy in every seat in turn on the same seeds, and counts.

    `others`: who plays the seats that are in nobody's competition, such as judges, as in `Play.players`.

    Returns `games`, `seats` (mean return by seat), `mean`, `ci95` (bootstrap over seeds: the seats played on one seed
    belong together), and the share of each of `OUTCOMES`. Seeds with an unscored game count in the shares alone.

    Raises:
        ValueError: no seed was scored in every seat.
    """
    from legos_train.rollout import Play

    rounds = seeds_for(games, len(seats))
    requests = [
        Play(
            env_id,
            seed + n,
            {"*": opponent, **(others or {})} | {a: policy if a == seat else opponent for a in seats},
            options or {},
            salt=2 * n + k,
        )
        for n in range(rounds)
        for k, seat in enumerate(seats)
    ]
    episodes = rollouts.run(requests)
    returns = np.array(
        [e.trajectories[seats[i % len(seats)]].total for i, e in enumerate(episodes)], dtype=float
    ).reshape(rounds, len(seats))
    outcomes = [outcome_of(e, seats[i % len(seats)], seats) for i, e in enumerate(episodes)]
    scored = np.array([kind != "unscored" for kind in outcomes]).reshape(rounds, len(seats)).all(axis=1)
    if not scored.any():
        reason = next(
            t.info.get("reason", "") for e in episodes for t in e.trajectories.values() if t.info.get("reason")
        )
        raise ValueError(f"no seed of {env_id} was scored in every seat; the first reason: {reason}")
    returns = returns[scored]
    return {
        "games": len(episodes),
        "seats": {seat: float(returns[:, k].mean()) for k, seat in enumerate(seats)},
        "mean": float(returns.mean()),
        "ci95": bootstrap_interval(returns.mean(axis=1), seed),
        **{kind: outcomes.count(kind) / len(outcomes) for kind in OUTCOMES},
    }
