"""Envs with their seats, requests for episodes, and the interface of task samplers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from pettingzoo import AECEnv

from legos_envs import Episode, records
from legos_train.config import sections
from legos_train.errors import ConfigError
from legos_train.rollout import env_maker
from legos_train.rollout.players import Actor, actors


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """One episode to play.

    Args:
        env: the name of an env in the arena, or any id that `legos_envs.make` knows.
        kwargs: constructor arguments, on top of those the env was added with.
        seed: of the episode; None: the arena draws one, the same for all requests of a `group`.
        options: passed to `reset`.
        train_roles: the roles to train on; None: those of the arena; `()`: an evaluation episode, which stores and
            samplers see but which never enters a batch.
        group: episodes of one group are compared with one another. None: requests with equal env, kwargs, seed and
            options form a group; without a seed each is on its own.
    """

    env: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    train_roles: tuple[str, ...] | None = None
    group: int | str | None = None


JUDGE = "scripted:on_topic"
"""The scripted judge for bundled models, which cannot judge: it counts the keywords of the subject in each answer."""


@dataclass(slots=True)
class EnvSlot:
    """An env of the arena: its factory, how often it is drawn, and its declared seats."""

    name: str
    make: Callable[..., AECEnv]
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    train_roles: tuple[str, ...] | None = None
    seats: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """agent -> (role, declared trainable)."""
    credit: str | None = None
    league: bool | None = None
    id: str | None = None
    """Its id for `legos_envs.make`; None for an env that was given as an object."""
    args: dict[str, Any] = field(default_factory=dict)
    can_judge: bool = False
    """Whether it has seats that are not trained, and `JUDGE` among its scripted players."""

    def entry(self) -> sections.EnvEntry:
        """The env as a config entry; an env given as an object has its name as id.

        Raises:
            ConfigError: an argument or option cannot be written to a file, from which another process creates the env.
        """
        return sections.EnvEntry(
            id=self.id or self.name,
            name=self.name,
            weight=self.weight,
            args=self._written("args", self.args),
            options=self._written("options", self.options),
            train_roles=self.train_roles,
            credit=self.credit,
            league=self.league,
        )

    def _written(self, what: str, given: dict[str, Any]) -> dict[str, Any]:
        out = {}
        for name, value in given.items():
            try:
                out[name] = records.jsonable(value)
            except TypeError:
                if self.id is not None:
                    kind = type(value).__name__
                    raise ConfigError(
                        f"{what} {name!r} of env {self.name!r} is of type {kind}, which config.toml cannot hold; "
                        "give strings, numbers, lists or tables, or a class or function that makes the env"
                    ) from None
                out[name] = f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"  # the env is code anyway
        return out

    @property
    def trained(self) -> list[str]:
        """The agents that the env declares trainable."""
        return [agent for agent, (_, trainable) in self.seats.items() if trainable]


def actor_of(role: str, entry: sections.ActorEntry, default: Actor, slots: Iterable[EnvSlot]) -> Actor:
    """The actor of a table `[actors.ROLE]`: by default the policy for seats that are trained, else the base model.

    Args:
        role: a role, an agent or `*`, with `ENV/` before it if it is for one env.
        entry: the table.
        default: who plays unless set otherwise.
        slots: the envs in which to look for the role.

    Raises:
        ConfigError: its limits of tokens contradict each other.
    """
    seats = [(role.removeprefix(f"{slot.name}/"), seat) for slot in slots for seat in slot.seats.items()]
    trained = any(t for wanted, (agent, (own, t)) in seats if wanted in (agent, own, actors.ANYBODY))
    model = entry.model or (actors.POLICY if trained else actors.BASE)
    default = default if trained else replace(default, temperature=0.0)
    sampling = entry.over(default, f"actors.{role}", model)
    return Actor(role, entry.system_prompt, model=model, trainable=entry.trainable, **sampling)


def make_slot(
    name: str,
    source: str | AECEnv | Callable[..., AECEnv],
    weight: float,
    args: dict[str, Any],
    options: dict[str, Any],
    train_roles: tuple[str, ...] | None,
) -> EnvSlot:
    make = _maker(source, args)
    probe = make()
    probe.reset(seed=0, options=options)
    seats = {agent: (info.get("role", agent), info.get("trainable", True)) for agent, info in probe.infos.items()}
    scripted = JUDGE.removeprefix("scripted:") in getattr(probe.unwrapped, "scripted_players", {})
    can_judge = scripted and not all(trained for _, trained in seats.values())
    return EnvSlot(name, make, weight, options, train_roles, seats, can_judge=can_judge)


def _maker(env: str | AECEnv | Callable[..., AECEnv], args: dict[str, Any]) -> Callable[..., AECEnv]:
    if isinstance(env, str):
        return env_maker(env, args)
    if callable(env):
        return lambda **more: env(**{**args, **more})
    if args:
        raise ValueError(f"args {sorted(args)} cannot be given for an existing env: {env}")

    def copied(**more: Any) -> AECEnv:
        if more:
            raise ValueError(f"kwargs {sorted(more)} cannot be given for an existing env: {env}")
        return copy.deepcopy(env)

    return copied


class TaskSampler(Protocol):
    """Decides what an episode is about, and learns from the result."""

    def prepare(self, request: EpisodeRequest, rng: np.random.Generator, step: int) -> EpisodeRequest:
        """The request, or one with other `options`; called once per group of episodes.

        Must depend only on the sampler's state and the arguments, so that the same call returns the same request.
        """
        ...

    def learn(self, episodes: Sequence[Episode], step: int) -> dict[str, float]:
        """Takes in the finished episodes of a step; returns numbers for its metrics record."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the arena's stores, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
