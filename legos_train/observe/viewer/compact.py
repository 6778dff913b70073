"""The page's data of an episode: a row for the list, and a body that is parsed when it is opened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from legos_train.observe.eval_numbers import is_number
from legos_train.observe.viewer.lines import TOLERANCE
from legos_train.observe.viewer.log import LogLine

Json = dict[str, Any]
SAID_ELSEWHERE = ("role", "trainable", "player", "untrained", "learner")


def compact(line: LogLine, run: int = 0) -> tuple[Json, Json]:
    """Row and body of an episode, JSON values.

    The row has what the list shows and filters by; its `seats` have each agent's result and `worst`, the turn to look
    at first. The body has everything else; its `seats` are in the same order. Messages that a turn repeats from the
    previous one are dropped (`kept` counts them), as is what a seat's info repeats from the episode's; prompt tokens
    are only counted.
    """
    data, episode = line.data, line.data["episode"]
    seats, bodies = [], []
    for trajectory in episode["trajectories"]:
        seat, body = _seat(trajectory, data, episode.get("info") or {})
        seats.append(seat)
        bodies.append(body)
    row = {
        "n": line.number,
        "run": run,
        "step": data.get("step", 0),
        "version": data.get("policy_version"),
        "env": str(data.get("env") or episode.get("env_id") or "?"),
        "seed": episode.get("seed"),
        "group": episode.get("group"),
        "turns": sum(len(body["turns"]) for body in bodies),
        "tokens": sum(len(turn.get("tokens", ())) for body in bodies for turn in body["turns"]),
        "seats": seats,
    }
    game = data.get("game")  # in an evaluation: who is measured, against whom
    if isinstance(game, dict) and isinstance(game.get("policy"), str):
        row["measured"] = [game["policy"], *([str(game["opponent"])] if game.get("opponent") else [])]
    body = {
        "id": episode.get("env_id"),
        "options": episode.get("options") or {},
        "info": episode.get("info") or {},
        "truncated": bool(episode.get("truncated")),
        "order": turn_order(episode["trajectories"], data.get("order")),
        "played": bool(data.get("order")),
        "seats": bodies,
    }
    return row, body


def _seat(trajectory: Json, data: Json, shared: Json) -> tuple[Json, Json]:
    agent, info = trajectory["agent"], trajectory.get("info") or {}
    advantages = _of(data, "advantages", agent) or []
    exact = _of(data, "exact", agent) or []
    trained = bool(_of(data, "trained", agent))
    turns: list[Json] = []
    before: Sequence[Json] = []
    for number, turn in enumerate(trajectory["turns"]):
        turns.append(
            _turn(turn, before, trajectory["turns"][number - 1] if number else None)
            | ({"advantage": advantages[number]} if number < len(advantages) else {})
            | ({"exact": exact[number]} if number < len(exact) and exact[number] else {})
        )
        before = turn.get("observation", [])
    outcome = _of(data, "outcome", agent)
    seat = {
        "agent": agent,
        "role": trajectory.get("role", agent),
        "player": str(_of(data, "players", agent) or "?"),
        "learner": str(info["learner"]) if info.get("learner") else None,
        "outcome": None if outcome is None else str(outcome),
        "return": _number(trajectory.get("carry", 0.0)) + sum(_number(turn["reward"]) for turn in turns),
        "trained": trained,
        "why": None if trained else str(_of(data, "why_not", agent) or "no reason given"),
        "worst": worst_turn(turns),
    }
    body = {
        "trainable": trajectory.get("trainable", True),
        "carry": trajectory.get("carry", 0.0),
        "info": {k: v for k, v in info.items() if k not in SAID_ELSEWHERE and (k not in shared or shared[k] != v)},
        "turns": turns,
    }
    return seat, body


def _turn(turn: Json, before: Sequence[Json], previous: Json | None) -> Json:
    messages = turn.get("observation", [])
    kept = 0
    while kept < min(len(before), len(messages)) and messages[kept] == before[kept]:
        kept += 1
    if previous is not None and kept == len(before) < len(messages):
        kept += messages[kept] == {"role": "assistant", "content": previous["action"]}
    out: Json = {"kept": kept, "messages": messages[kept:], "action": turn["action"], "reward": turn.get("reward", 0.0)}
    for name, source in (("legal", "legal_actions"), ("version", "policy_version"), ("finish", "finish_reason")):
        if turn.get(source) is not None:
            out[name] = turn[source]
    if turn.get("prompt_tokens") is not None:
        out["prompt"] = len(turn["prompt_tokens"])
    if turn.get("action_tokens") is not None:
        out["tokens"] = turn["action_tokens"]
        if turn.get("action_texts") is not None:
            out["texts"] = turn["action_texts"]
        if turn.get("logprobs") is not None:
            out["logprobs"] = [round(v, 4) if math.isfinite(v) else str(v) for v in turn["logprobs"]]
    return out


def worst_turn(turns: Sequence[Json]) -> Json | None:
    """Where to look first: the largest drop in exact value, else the most negative advantage, else the last turn.

    Returns:
        `turn` (from 0), `by` ("exact", "advantage", "last" or, if the exact values of all turns are known and none
        dropped, "luck") and `value`, the change in exact value or the advantage; None for a seat without turns.
    """
    drops = [
        (t["exact"][1] - t["exact"][0], n)
        for n, t in enumerate(turns)
        if "exact" in t and all(map(is_number, t["exact"]))
    ]
    if drops and min(drops)[0] < -TOLERANCE:
        value, number = min(drops)
        return {"turn": number, "by": "exact", "value": value}
    if turns and len(drops) == len(turns):  # the loss was due to cards or an unbeatable opponent
        return {"turn": len(turns) - 1, "by": "luck", "value": None}
    advantages = [(t["advantage"], n) for n, t in enumerate(turns) if is_number(t.get("advantage"))]
    if advantages and min(advantages)[0] < 0:
        value, number = min(advantages)
        return {"turn": number, "by": "advantage", "value": value}
    return {"turn": len(turns) - 1, "by": "last", "value": None} if turns else None


def turn_order(trajectories: Sequence[Json], order: Any) -> list[list[int]]:
    """[seat, turn] of every turn in the order of play; if the log lacks it, all first turns, then all second."""
    counts = [len(trajectory["turns"]) for trajectory in trajectories]
    index = {trajectory["agent"]: number for number, trajectory in enumerate(trajectories)}
    if isinstance(order, list) and all(isinstance(agent, str) and agent in index for agent in order):
        done = [0] * len(counts)
        turns = []
        for agent in order:
            seat = index[agent]
            turns.append([seat, done[seat]])
            done[seat] += 1
        if done == counts:
            return turns
    return [[seat, turn] for turn in range(max(counts)) for seat, count in enumerate(counts) if turn < count]


def _of(data: Json, name: str, agent: str) -> Any:
    return (data.get(name) or {}).get(agent)


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0
