"""Helpers of the samplers: the envs they apply to, and requests with other options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pettingzoo.utils.env import AECEnv

if TYPE_CHECKING:
    from legos_train.arena.arena import Arena
    from legos_train.arena.request import EpisodeRequest

E = TypeVar("E")


def suitable(arena: Arena, kind: type[E]) -> dict[str, E]:
    """The envs of the arena that are of a class, by name.

    Raises:
        ValueError: there is none.
    """
    made: dict[str, AECEnv] = {name: slot.make() for name, slot in arena.envs.items()}
    found = {name: env.unwrapped for name, env in made.items() if isinstance(env.unwrapped, kind)}
    if not found:
        kinds = ", ".join(f"{name} ({type(env.unwrapped).__name__})" for name, env in made.items()) or "none"
        raise ValueError(f"it is for {kind.__name__} environments; the run has {kinds}")
    return found


def is_settled(request: EpisodeRequest, *names: str) -> bool:
    """Whether a request must not be changed: an evaluation episode, or one that sets its own task."""
    return request.train_roles == () or any(name in (request.options or {}) for name in names)


def with_options(request: EpisodeRequest, options: Mapping[str, Any]) -> EpisodeRequest:
    """The request with these options added to its own."""
    return dataclasses.replace(request, options={**(request.options or {}), **options})


def means(**values: list[float]) -> dict[str, float]:
    """The mean of each list; empty lists are left out."""
    return {name: sum(each) / len(each) for name, each in values.items() if each}
