"""What a policy is worth: exactly where the game can be solved, else by games with paired seeds.

Used alike by `legos eval` and, every few steps, by training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pettingzoo import AECEnv

from legos_envs import Episode, GameEnv, InfoSet, exact, parsing
from legos_train.rollout import ModelPlayer, Play, Player, Rollouts


def action_probabilities(
    env: GameEnv, players: Sequence[ModelPlayer], info_sets: Sequence[InfoSet]
) -> tuple[dict[InfoSet, dict[str, float]], dict[InfoSet, float]]:
    """The models' own probabilities of the legal actions, each as the tokens `[move]` and the end of the turn.

    Args:
        players: who answers, by player number.

    Returns:
        The probabilities by information set, normalised over the legal moves, and the mass that is left over there:
        the probability of answering with anything else.
    """
    by_player: dict[int, list[InfoSet]] = {}
    for info in info_sets:
        by_player.setdefault(info.player, []).append(info)
    probabilities: dict[InfoSet, dict[str, float]] = {}
    leftover: dict[InfoSet, float] = {}
    for number, infos in by_player.items():
        player = players[number]
        end = player.renderer.end_id
        prompts: list[Sequence[int]] = []
        replies: list[Sequence[int]] = []
        for info in infos:
            prompt = player.renderer.start(env.observation_in(info)["messages"], player.system)
            for move in info.legal:
                prompts.append(prompt)
                replies.append([*player.renderer.encode(parsing.write_action(move, env.action_format)), end])
        scores = iter(player.engine.score(prompts, replies, adapter=player.adapter))
        for info in infos:
            mass = {move: math.exp(float(np.sum(next(scores)))) for move in info.legal}
            total = sum(mass.values())
            probabilities[info] = {move: p / total if total else 1 / len(mass) for move, p in mass.items()}
            leftover[info] = max(0.0, 1.0 - total)
    return probabilities, leftover


def exact_metrics(
    env: GameEnv, players: Sequence[ModelPlayer], info_sets: Sequence[InfoSet] | None = None
) -> dict[str, float]:
    """Numbers without sampling noise, from the models' own action probabilities in every information set.

    `nash_conv`: what both players together could gain by deviating (0 at an equilibrium). For games of perfect
    information also `optimal_move` (mean probability of an optimal move where moves differ) and `no_loss` (probability
    of not losing to uniformly random play). `illegal`: mean probability of an answer that is no legal action.
    """
    infos = exact.info_sets(env.game) if info_sets is None else info_sets
    probabilities, leftover = action_probabilities(env, players, infos)
    return {**policy_metrics(env, probabilities), "illegal": float(np.mean(list(leftover.values())))}


def policy_metrics(env: GameEnv, policy: Mapping[InfoSet, Mapping[str, float]]) -> dict[str, float]:
    """The exact numbers of a policy given as probabilities per information set."""
    numbers = {"nash_conv": float(exact.nash_conv(env.game, policy.__getitem__))}
    if env.zero_sum and exact.graph_of(env.game).perfect_information:
        numbers["optimal_move"] = float(exact.optimal_move_probability(env.game, policy.__getitem__))
        numbers["no_loss"] = float(exact.no_loss_rate(env.game, policy.__getitem__))
    return numbers


def solvable(env: AECEnv) -> bool:
    """Whether exact numbers can be had: a `GameEnv` whose prompts are information sets, played for one round."""
    return (
        isinstance(env, GameEnv)
        and getattr(env.game, "solvable", True)
        and env.memory == "state"
        and getattr(env, "num_rounds", 1) == 1
        and getattr(env.game, "rounds", 1) == 1
    )


OUTCOMES = ("win", "draw", "loss", "invalid", "opponent_invalid", "truncated", "unscored")


def outcome_of(episode: Episode, agent: str) -> str:
    """One of `OUTCOMES`; `invalid`: this agent ended the episode so; `unscored`: a judge failed."""
    if episode.truncated:
        return "truncated"
    if episode.outcome == "unscored":
        return "unscored"
    if episode.outcome == "invalid":
        return "invalid" if agent in episode.info.get("offenders", ()) else "opponent_invalid"
    own = episode.trajectories[agent].total
    others = [t.total for a, t in episode.trajectories.items() if a != agent and t.trainable]
    best = max(others, default=0.0)
    return "win" if own > best else "loss" if own < best else "draw"


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
    rounds = max(1, math.ceil(games / len(seats)))
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
    outcomes = [outcome_of(e, seats[i % len(seats)]) for i, e in enumerate(episodes)]
    scored = np.array([kind != "unscored" for kind in outcomes]).reshape(rounds, len(seats)).all(axis=1)
    if not scored.any():
        reason = next(e.info.get("reason", "") for e in episodes if e.outcome == "unscored")
        raise ValueError(f"no seed of {env_id} was scored in every seat; the first reason: {reason}")
    returns = returns[scored]
    return {
        "games": len(episodes),
        "seats": {seat: float(returns[:, k].mean()) for k, seat in enumerate(seats)},
        "mean": float(returns.mean()),
        "ci95": bootstrap_interval(returns.mean(axis=1), seed),
        **{kind: outcomes.count(kind) / len(outcomes) for kind in OUTCOMES},
    }


def bootstrap_interval(values: np.ndarray, seed: int, resamples: int = 2000) -> list[float]:
    """Percentile bootstrap 95 % interval of the mean of independent values (Efron, 1979)."""
    rng = np.random.default_rng(seed)
    means = [float(values[rng.integers(0, len(values), len(values))].mean()) for _ in range(resamples)]
    low, high = np.percentile(means, [2.5, 97.5])
    return [float(low), float(high)]
