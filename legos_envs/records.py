"""Records of episodes: turns, trajectories, episodes. Plain data, no model, no env.

Terms as in the README's glossary: a *turn* is one action of one agent, a *trajectory* is all turns of one agent, an
*episode* is the finished record from `reset` to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, str]


@dataclass(slots=True)
class Turn:
    """One action. Token fields are filled in by whoever sampled the action and are never recomputed from text.

    `reward` is everything the agent received from this action until its next one (or the end). `prompt_tokens` (P,) is
    everything the model read, `action_tokens` (L,) what it sampled (including the end token if sampled), `logprobs`
    (L,) natural logs under the sampling policy at temperature 1. `policy_version` is the oldest version that sampled a
    token; `token_versions` (L,) is present if new weights were published in mid-action. `written`: positions in
    `action_tokens` written by a rule instead of the policy, such as the end of a thought at its limit; nothing is
    learned from these.
    """

    observation: tuple[Message, ...]
    action: str
    reward: float = 0.0
    legal_actions: tuple[str, ...] | None = None
    prompt_tokens: Sequence[int] | None = None
    action_tokens: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    policy_version: int | None = None
    finish_reason: str | None = None
    token_versions: Sequence[int] | None = None
    written: Sequence[int] | None = None


@dataclass(slots=True)
class Trajectory:
    """All turns of one agent. `carry` is reward that arrived before its first turn (or without any turn)."""

    agent: str
    role: str
    trainable: bool = True
    turns: list[Turn] = field(default_factory=list)
    carry: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def parent(self) -> str:
        """The table the agent sits at: `a/b` for `a/b/solver_3`, the empty string at the root."""
        return self.agent.rpartition("/")[0]

    @property
    def total(self) -> float:
        """The undiscounted return."""
        turns = self.turns
        return self.carry + (turns[0].reward if len(turns) == 1 else sum([turn.reward for turn in turns]))


@dataclass(slots=True)
class TableRecord:
    """A node of the episode tree: the agents seated there, and the tables below it by name (`problem_0`, `match_2`)."""

    path: str
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    tables: dict[str, TableRecord] = field(default_factory=dict)

    @property
    def returns(self) -> dict[str, float]:
        return {agent: trajectory.total for agent, trajectory in self.trajectories.items()}


@dataclass(slots=True)
class Episode:
    """The finished record of one episode. Episodes with the same `group` are compared with one another."""

    env_id: str
    seed: int
    options: dict[str, Any]
    trajectories: dict[str, Trajectory]
    truncated: bool = False
    group: int | str | None = None
    info: dict[str, Any] = field(default_factory=dict)
    order: list[str] = field(default_factory=list, compare=False)
    """The agents in the order they were stepped; independent ones may come in any order."""

    @property
    def outcome(self) -> str | None:
        """`"invalid"`, `"truncated"` or the outcome set by the rules; None if they set none."""
        return self.info.get("outcome")

    @property
    def returns(self) -> dict[str, float]:
        return {agent: trajectory.total for agent, trajectory in self.trajectories.items()}

    @property
    def tree(self) -> TableRecord:
        """The tables of the episode as a tree: the root holds the agents without a path, and the tables below it."""
        root = TableRecord("")
        for agent, trajectory in self.trajectories.items():
            table = root
            for name in agent.split("/")[:-1]:
                path = f"{table.path}/{name}" if table.path else name
                table = table.tables.setdefault(name, TableRecord(path))
            table.trajectories[agent] = trajectory
        return root

    @property
    def turns(self) -> int:
        return sum(len(trajectory.turns) for trajectory in self.trajectories.values())


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """The episode as JSON values; `episode_from_json` restores an equal one. Token fields that are None are omitted.

    Raises:
        TypeError: `options` or an info contains something that JSON cannot represent.
    """
    return {
        "env_id": episode.env_id,
        "seed": jsonable(episode.seed),
        "options": jsonable(episode.options),
        "group": episode.group,
        "truncated": episode.truncated,
        "info": jsonable(episode.info),
        "order": list(episode.order),
        "trajectories": [
            {
                "agent": t.agent,
                "role": t.role,
                "trainable": t.trainable,
                "carry": t.carry,
                "info": jsonable(t.info),
                "turns": [_turn_to_json(turn) for turn in t.turns],
            }
            for t in episode.trajectories.values()
        ],
    }


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    out: dict[str, Any] = {"observation": list(turn.observation), "action": turn.action, "reward": turn.reward}
    for name in ("legal_actions", "prompt_tokens", "action_tokens", "logprobs", "token_versions", "written"):
        value = getattr(turn, name)
        if value is not None:
            out[name] = [v if isinstance(v, str) else (float(v) if name == "logprobs" else int(v)) for v in value]
    for name in ("policy_version", "finish_reason"):
        if getattr(turn, name) is not None:
            out[name] = getattr(turn, name)
    return out


def episode_from_json(data: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_json`. Raises KeyError for a missing field."""
    trajectories = {}
    for t in data["trajectories"]:
        turns = [
            Turn(
                tuple(turn["observation"]),
                turn["action"],
                turn["reward"],
                None if "legal_actions" not in turn else tuple(turn["legal_actions"]),
                None if "prompt_tokens" not in turn else tuple(turn["prompt_tokens"]),
                None if "action_tokens" not in turn else tuple(turn["action_tokens"]),
                None if "logprobs" not in turn else tuple(turn["logprobs"]),
                turn.get("policy_version"),
                turn.get("finish_reason"),
                None if "token_versions" not in turn else tuple(turn["token_versions"]),
                None if "written" not in turn else tuple(turn["written"]),
            )
            for turn in t["turns"]
        ]
        trajectories[t["agent"]] = Trajectory(t["agent"], t["role"], t["trainable"], turns, t["carry"], t["info"])
    return Episode(
        data["env_id"],
        data["seed"],
        data["options"],
        trajectories,
        data["truncated"],
        data["group"],
        data["info"],
        data.get("order", []),
    )


def jsonable(value: Any) -> Any:
    """Converts numpy numbers, tuples, sets and non-string keys to JSON values.

    Raises:
        TypeError: there is no such form.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(jsonable(v) for v in value)
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r:.80}")
