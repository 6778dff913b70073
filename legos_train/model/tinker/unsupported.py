"""Settings without an equivalent in the Tinker API."""

from __future__ import annotations

from typing import Any

from inference.types import UNCHANGED
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model.tinker.sampler import SERVICE_DRAWS
from legos_train.rollout.players import actors

SERVICE_LOSSES = ("ppo", "importance_sampling", "cispo")
"""The losses of the API, with ours of the same name; `TokenLoss.holds` says how each clips."""


def check(config: TrainConfig) -> None:
    """Rejects, in one message, settings without an equivalent in the Tinker API.

    Raises:
        ConfigError: names each, and what to write instead.
    """
    sampled: dict[str, Any] = {"sampling": config.sampling}
    sampled |= {f"actors.{role}": one for role, one in config.actors.items() if one.model in (None, *actors.OWN)}
    if not config.tinker.mirror:
        sampled |= {f"eval.env.{one.label}": one for one in config.eval.env}
    draws = {name: (None, usual) for name, usual in vars(UNCHANGED).items() if name not in SERVICE_DRAWS}
    unknown = [
        f"{of}.{name}" for of, one in sampled.items() for name, fine in draws.items() if getattr(one, name) not in fine
    ]
    limited = [f"{of}.thinking_tokens" for of, one in sampled.items() if one.thinking_tokens is not None]
    wrong = {
        f"{' and '.join(unknown)}; it has {', '.join(SERVICE_DRAWS)}": bool(unknown),
        f"loss.name = {config.loss.name!r}; it has {', '.join(SERVICE_LOSSES)}": config.loss.name not in SERVICE_LOSSES,
        "asynchronous.in_flight = 'keep' gives running requests new weights; use 'pin'": config.asynchronous.enabled
        and config.asynchronous.in_flight == "keep",
        f"{' and '.join(limited)}, which closes thoughts while they are sampled; use none": bool(limited),
    }
    if found := [what for what, is_so in wrong.items() if is_so]:
        raise ConfigError(f"the Tinker API cannot run these settings: {'; '.join(found)}")
