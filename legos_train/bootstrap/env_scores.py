"""How a model plays in every environment: how often it answers illegally, and its returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import legos_envs
from legos_envs.policies import RandomPolicy, ScriptedPolicy
from legos_envs.records import Episode, Trajectory
from legos_train.bootstrap import measure, mixtures
from legos_train.rollout import Job, Rollouts
from legos_train.rollout.players import ModelPlayer, Player, actors

SETTINGS: dict[str, dict[str, str]] = {
    "state": {"memory": "state"},
    "state, boxed": {"memory": "state", "action_format": "boxed"},
    "chat": {"memory": "chat"},
    "chat, boxed": {"memory": "chat", "action_format": "boxed"},
}
"""The settings in which every environment is played."""
LONG = ("EloArena", "LiarsDice", "PigDice", "Tournament")
"""Environments with many turns, in which only a quarter of the games is played."""
ACTIONS = 500
"""The fewest actions in a setting, for which more games are played: of 500, a share of 5 % is known to within 2 %."""
BLOCKS = 32
"""The most times that the games of a setting are played, with new seeds."""
SEED = 1_000_000
"""The first seed: the recipe draws its seeds below 2^31 at random."""


class EnvScore(NamedTuple):
    """One model in one environment.

    Attributes:
        env_id: the environment.
        illegal: by setting, the share of its actions that were illegal.
        itself: its mean return in all trained seats.
        best: its mean return in one seat, taking each role in turn, with the best scripted players in all other
            seats; None if there is only one seat.
        scripted: the mean return of the best scripted players in the same seats; None if there are none.
    """

    env_id: str
    illegal: dict[str, float]
    itself: float
    best: float | None
    scripted: float | None


def illegal_actions(trajectory: Trajectory, episode: Episode) -> int:
    """How many actions of a trajectory were illegal: those marked so, and the last one if it forfeited."""
    answered = sum("Invalid move:" in turn.observation[-1]["content"] for turn in trajectory.turns)
    own = trajectory.info
    forfeited = (
        "invalid" in own
        or (episode.outcome == "invalid" and trajectory.agent in episode.info.get("offenders", ()))
        or (own.get("ending") == "forfeit" and "reason" in own)
    )
    return answered + forfeited


def measure_all(
    player: ModelPlayer, env_ids: Sequence[str] | None = None, games: int = 32, actions: int = ACTIONS
) -> Iterator[EnvScore]:
    """Plays all registered environments, or some, for `games` games in each setting (`LONG`: a quarter).

    As many more games are played, a block at a time, until there are `actions` actions or `BLOCKS` blocks.
    """
    rollouts = Rollouts(legos_envs.make, concurrency=64)
    for env_id in legos_envs.registered() if env_ids is None else env_ids:
        count = max(1, games // 4) if env_id.removesuffix("-v0") in LONG else games
        others, trained = _best_players(env_id)
        players = {"*": player, **{role: best for role, best in others.items() if role not in trained}}
        illegal: dict[str, float] = {}
        itself: list[float] = []
        for name, args in SETTINGS.items():
            played = refused = 0
            for first in range(0, BLOCKS * count, count):
                for episode in _play(rollouts, env_id, range(first, first + count), players, args):
                    for one in episode.trajectories.values():
                        if one.trainable:
                            played, refused = played + len(one.turns), refused + illegal_actions(one, episode)
                            itself.append(one.total)
                if played >= actions:
                    break
            illegal[name] = refused / max(played, 1)
        best, scripted = _beside_others(rollouts, env_id, count, player, others, trained)
        yield EnvScore(env_id, illegal, float(np.mean(itself)), best, scripted)


def _play(
    rollouts: Rollouts, env_id: str, games: range, players: Mapping[str, Player], args: Mapping[str, Any]
) -> list[Episode]:
    jobs = [Job(env_id, SEED + seed, players, args=args) for seed in games]
    return rollouts.run(jobs)


def _best_players(env_id: str) -> tuple[dict[str, Player], dict[str, str]]:
    """The best scripted players from `mixtures` (random ones in its games), and one seat of each trained role."""
    env = legos_envs.make(env_id)
    scripted = dict(env.unwrapped.scripted_players)
    env.reset(seed=0)
    seating = mixtures.SEATINGS.get(env_id, {})
    best: dict[str, Player] = {}
    trained: dict[str, str] = {}
    for agent, info in env.infos.items():
        role = info.get("role", agent)
        names = seating.get(role, seating.get("*", ()))
        best[role] = ScriptedPolicy(scripted[names[0]]) if names else RandomPolicy()
        if info.get("trainable", True):
            trained.setdefault(role, agent)
    return best, trained


def _beside_others(
    rollouts: Rollouts,
    env_id: str,
    games: int,
    player: ModelPlayer,
    others: Mapping[str, Player],
    trained: Mapping[str, str],
) -> tuple[float | None, float]:
    """Mean returns by role, averaged over roles: the model's in one seat beside the best players, and theirs."""
    played = _play(rollouts, env_id, range(games), others, {})
    best = [np.mean([t.total for e in played for t in e.trajectories.values() if t.role == role]) for role in trained]
    if all(len(e.trajectories) == 1 for e in played):
        return None, float(np.mean(best))
    model = []
    for agent in trained.values():
        beside = _play(rollouts, env_id, range(max(games // len(trained), 8)), {**others, agent: player}, {})
        model.append(np.mean([e.trajectories[agent].total for e in beside]))
    return float(np.mean(model)), float(np.mean(best))


def report_played(folder: str | Path, env_ids: Sequence[str] | None = None, games: int = 32) -> Iterator[str]:
    """Lines of a markdown table of `measure_all`, as they are ready."""
    player = replace(measure.load(folder), max_tokens=actors.default_tokens("small"))
    yield f"| environment | {' | '.join(f'illegal, {name}' for name in SETTINGS)} | return | beside best | best |"
    yield f"|{'---|' * (len(SETTINGS) + 4)}"
    for one in measure_all(player, env_ids, games):
        shares = " | ".join(f"{share:.1%}" for share in one.illegal.values())
        numbers = " | ".join("" if value is None else f"{value:+.3f}" for value in (one.itself, one.best, one.scripted))
        yield f"| {one.env_id} | {shares} | {numbers} |"
