"""One line of `rollouts.jsonl`: an episode with data from the trainer (or the evaluation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from legos_envs.records import Episode, episode_to_json

Step = tuple[float, float]
TOLERANCE = 1e-9


def rollout_line(
    episode: Episode,
    *,
    step: int,
    policy_version: int,
    env: str = "",
    advantages: Mapping[str, Sequence[float]] | None = None,
    trained: Mapping[str, bool] | None = None,
    why_not: Mapping[str, str] | None = None,
    players: Mapping[str, str] | None = None,
    outcome: Mapping[str, str] | None = None,
    exact: Mapping[str, Sequence[Step | None]] | None = None,
    order: Sequence[str] | None = None,
    decode: Callable[[int], str] | Mapping[str, Callable[[int], str]] | None = None,
) -> dict[str, Any]:
    """The line of an episode, as JSON values: write it with `json.dumps` and a newline.

    Args:
        episode: the finished record.
        step: the optimiser step that the episode was played for; 0 for an evaluation.
        policy_version: the trainer's version. A turn's own version, if it has one, may be older.
        env: the label of the env in this run; the episode's env id by default.
        advantages: by agent, one number per turn, from credit assignment.
        trained: by agent, whether its tokens entered a batch; by default those with advantages and no `why_not`.
        why_not: by agent that was not trained: "judge", "opponent: step_40", "stale", "draw filtered", ...
        players: by agent, its player: "policy", "base", "league:step_40", "random", ...; "policy" by default.
        outcome: by agent, "win", "loss", "draw", "invalid", ...; `seat_outcomes(episode)` by default.
        exact: by agent, per turn its expected return before and after the turn, or None where that is unknown.
        order: the agents in the order they were stepped, one entry per turn.
        decode: maps a token id to its text; one for all, or by agent if models differ. With it each turn gets
            `action_texts`, one string per action token, so that readers of the log do not need the tokenizer.

    Raises:
        ValueError: an agent is unknown, or a list does not have one entry per turn; the message names it.
        TypeError: the episode contains something that JSON cannot represent.
    """
    trajectories = episode.trajectories
    perturn: dict[str, Mapping[str, Sequence[Any]] | None] = {"advantages": advantages, "exact": exact}
    peragent: dict[str, Mapping[str, Any] | None] = {
        "trained": trained,
        "why_not": why_not,
        "players": players,
        "outcome": outcome,
    }
    for name, table in {**perturn, **peragent}.items():
        if unknown := set(table or ()) - set(trajectories):
            raise ValueError(f"{name} names {sorted(unknown)}; the agents are {list(trajectories)}")
    for name, table in perturn.items():
        for agent, values in (table or {}).items():
            if len(values) != len(trajectories[agent].turns):
                turns = len(trajectories[agent].turns)
                raise ValueError(f"{name} of {agent!r} has {len(values)} entries; it made {turns} turns")
    used = {a: a not in (why_not or {}) for a in advantages or ()} if trained is None else trained
    data = episode_to_json(episode)
    for trajectory in data["trajectories"]:
        text = decode.get(trajectory["agent"]) if isinstance(decode, Mapping) else decode
        for turn in trajectory["turns"]:
            if text is not None and "action_tokens" in turn:
                turn["action_texts"] = [text(token) for token in turn["action_tokens"]]
    line: dict[str, Any] = {
        "step": int(step),
        "policy_version": int(policy_version),
        "env": env or episode.env_id,
        "episode": data,
        "advantages": {agent: [float(value) for value in values] for agent, values in (advantages or {}).items()},
        "trained": {agent: bool(used.get(agent, False)) for agent in trajectories},
        "why_not": dict(why_not or {}),
        "players": {agent: (players or {}).get(agent, "policy") for agent in trajectories},
        "outcome": dict(seat_outcomes(episode) if outcome is None else outcome),
    }
    if exact is not None:
        line["exact"] = {
            agent: [None if pair is None else [float(pair[0]), float(pair[1])] for pair in pairs]
            for agent, pairs in exact.items()
        }
    if order is not None:
        counts = {agent: len(trajectory.turns) for agent, trajectory in trajectories.items()}
        if {agent: list(order).count(agent) for agent in {*counts, *order}} != counts:
            raise ValueError(f"order must name each agent once per turn ({counts}); got {list(order)!r:.200}")
        line["order"] = list(order)
    return line


def seat_outcomes(episode: Episode) -> dict[str, str]:
    """How the episode ended for each agent, as far as its record shows.

    "truncated" for all if the turn limit ended it, "unscored" if a judge failed; "invalid" for whoever broke the rules;
    "win", "loss" or "draw" by return for two that compete at one table, whoever plays them (a league opponent is not
    trained, and still wins or loses); "win" or "loss" by a right or wrong answer for one alone. Seats for which none of
    this applies are left out.
    """
    if episode.truncated or episode.outcome == "unscored":
        return dict.fromkeys(episode.trajectories, "truncated" if episode.truncated else "unscored")
    outcomes: dict[str, str] = {}
    tables: dict[str, list[str]] = {}
    for agent, trajectory in episode.trajectories.items():
        if trajectory.trainable or trajectory.info.get("trainable"):
            tables.setdefault(trajectory.parent, []).append(agent)
    for seats in tables.values():
        correct = episode.trajectories[seats[0]].info.get("correct")
        if len(seats) == 1 and isinstance(correct, bool):
            outcomes[seats[0]] = "win" if correct else "loss"
        if len(seats) == 2:
            first, second = (episode.trajectories[agent].total for agent in seats)
            if abs(first - second) <= TOLERANCE:
                outcomes |= dict.fromkeys(seats, "draw")
            else:
                outcomes |= dict(zip(seats, ("win", "loss") if first > second else ("loss", "win")))
    offenders = episode.info.get("offenders") or ()
    for agent, trajectory in episode.trajectories.items():
        if agent in offenders or trajectory.info.get("invalid"):
            outcomes[agent] = "invalid"
    return outcomes
