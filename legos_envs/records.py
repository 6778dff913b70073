"""What an episode leaves behind: turns, trajectories, episodes. Plain data, no model, no env.

Words as in the README's glossary: a *turn* is one action of one agent, a *trajectory* all turns of one agent,
an *episode* the finished record of one `reset ... end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, str]


@dataclass(slots=True)
class Turn:
    """One action. Token fields are filled in by whoever sampled the action and are never re-made from text.

    `reward` is everything the agent received from this action until its next one (or the end). `prompt_tokens` (P,)
    is all the model read, `action_tokens` (L,) what it sampled (end token included when it was sampled),
    `logprobs` (L,) natural logs under the sampling policy at temperature 1.
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
        return self.carry + sum(turn.reward for turn in self.turns)


@dataclass(slots=True)
class Episode:
    """The finished record of one episode. `group` names the episodes that are compared with one another."""

    env_id: str
    seed: int
    options: dict[str, Any]
    trajectories: dict[str, Trajectory]
    truncated: bool = False
    group: int | str | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str | None:
        """`"invalid"`, `"truncated"` or what the rules said; None when they said nothing."""
        return self.info.get("outcome")

    @property
    def returns(self) -> dict[str, float]:
        return {agent: trajectory.total for agent, trajectory in self.trajectories.items()}

    @property
    def turns(self) -> int:
        return sum(len(trajectory.turns) for trajectory in self.trajectories.values())
