"""Actors, the players of roles. An env defines the seats; actors define who sits in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any

from inference import DrawParams
from legos_envs import Policy
from legos_train.rollout.players.chat_api import checked_word as checked_word  # noqa: PLC0414  settings validate with it
from legos_train.rollout.players.policy_kinds import ENDPOINT as ENDPOINT  # noqa: PLC0414
from legos_train.rollout.players.policy_kinds import HUMAN as HUMAN  # noqa: PLC0414
from legos_train.rollout.players.policy_kinds import listed as listed  # noqa: PLC0414

POLICY, BASE, LEAGUE = "policy", "base", "league:"
OWN = (POLICY, BASE)
"""The names of the run's own model, with and without what it has learned."""
TOKENS = 1024
BUNDLED_TOKENS = {"tiny": 12, "small": 96}
"""Default maximum tokens per action; the bundled models write moves and short answers."""
TIMEOUT, CONNECTIONS = 120.0, 32
"""Defaults for endpoints: seconds for one request, and concurrent requests."""
ANYBODY, UNTRAINED = "*", "*untrained"
"""Keys of a job's players: for all seats; for the seats that the env does not train."""


@dataclass(frozen=True)
class Actor(DrawParams):
    """The player of a role and its settings, among them those of `inference.DrawParams`, such as `temperature`.

    Args:
        role: a role of the environments, or `ENV/ROLE` for one environment of several.
        system_prompt: prepended to the conversation.
        max_tokens: maximum tokens per action; None: the run's `sampling.max_tokens`.
        model: `"policy"` (the weights being trained), `"base"` (the model without its adapter), a policy of `legos
            eval` such as `"random"`, or a function from a `legos_envs.Decision` to the text of the action, which may
            be a coroutine function.
        trainable: if off, the role plays but is not trained on. Only actions of `"policy"` are ever trained on.
        thinking_tokens: maximum tokens per thought, within `max_tokens`; None: no separate limit.
        learner: which of several learners `"policy"` is; set by the arena.
    """

    role: str
    system_prompt: str = ""
    _: KW_ONLY
    max_tokens: int | None = None
    model: str | Policy = POLICY
    trainable: bool = True
    thinking_tokens: int | None = None
    learner: str | None = None

    def __post_init__(self) -> None:
        if not self.role:
            raise ValueError("an Actor needs the name of a role")
        if not self.temperature >= 0:
            raise ValueError(f"the temperature of actor {self.role!r} must be at least 0, got {self.temperature}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens of actor {self.role!r} must be at least 1, got {self.max_tokens}")
        if not (isinstance(self.model, str) or callable(self.model)):
            raise TypeError(
                f"the model of actor {self.role!r} must be a name or a function from Decision to text, "
                f"got {type(self.model).__name__}"
            )

        if isinstance(self.model, str):
            checked_word(self.model)

    @property
    def player(self) -> str:
        """Its name in logs."""
        return self.model if isinstance(self.model, str) else getattr(self.model, "__name__", type(self.model).__name__)

    def with_model(self, word: str) -> Actor:
        """The actor with a model by name, and the same sampling. Other models than the run's have no limit of thoughts:
        they may have no thoughts, and their server may not know such limits.
        """
        return replace(self, model=word, thinking_tokens=self.thinking_tokens if word in OWN else None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for another process.

        Raises:
            TypeError: the model is a function, which cannot be sent.
        """
        if not isinstance(self.model, str):
            raise TypeError(
                f"actor {self.role!r} is played by a Python function, which cannot be sent to the generating process; "
                "set asynchronous.backend = 'thread', or give a name such as 'random'"
            )
        return asdict(self)


def lookup(players: Mapping[str, Any], agent: str, role: str, trainable: bool) -> Any:
    """The player of an agent: its own entry, its role's, that of untrained seats, the general one; None if missing."""
    for key in (agent, role) if trainable else (agent, role, UNTRAINED):
        if key in players:
            return players[key]
    return players.get(ANYBODY)


def default_tokens(model: str) -> int:
    """A model's default maximum tokens per action, both in training and evaluation."""
    return BUNDLED_TOKENS.get(model, TOKENS)


def adapter_name(weights: str, learner: str | None) -> str:
    """The engine's name of an adapter: that of the weights (`policy`, `average`, `step_40`) and of their learner."""
    return weights if learner is None else f"{weights}.{learner}"


def parts_of(adapter: str, learners: Collection[str]) -> tuple[str, str | None]:
    """The inverse of `adapter_name`: the weights and the learner; None if the name ends with none of these learners."""
    weights, dot, learner = adapter.rpartition(".")
    return (weights, learner) if dot and learner in learners else (adapter, None)
