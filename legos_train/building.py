"""From settings to the objects of a run: arena, credit, league, task samplers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from legos_train.actors import ANYBODY, BASE, POLICY, Actor
from legos_train.arena import Arena
from legos_train.config import ConfigError, TrainConfig
from legos_train.credit import CreditAssigner, PerEnv, from_settings
from legos_train.league import League
from legos_train.settings import ActorEntry


def arena_of(config: TrainConfig, arena: Arena | None = None) -> Arena:
    """The run's arena: the user's, with what the config adds to it, or one made from the config alone.

    Raises:
        ConfigError: a role, an actor or a task sampler does not fit the envs.
    """
    arena = Arena() if arena is None else arena
    arena.seed, arena.model = config.seed, config.model
    arena.batch_size, arena.group_size = config.batch_size, config.grouped
    arena.train_roles = config.train_roles
    s = config.sampling
    arena.default = Actor(ANYBODY, "", s.temperature, config.action_tokens, POLICY, True, s.top_p)
    if not arena.envs:
        arena.from_config = True
        for entry in config.envs:
            arena.add_env(
                entry.label,
                entry.id,
                entry.weight,
                args=entry.args,
                options=entry.options,
                train_roles=entry.train_roles,
            )
    for role, given in config.actors.items():
        if role not in arena.actors:
            arena.add_actor(_actor(role, given, arena))
    _check_roles(config, arena)
    if config.curriculum.sampler and not arena.samplers:
        from legos_train.curriculum import make_sampler

        arena.add_sampler(make_sampler(config.curriculum, arena))
    return arena


def _actor(role: str, entry: ActorEntry, arena: Arena) -> Actor:
    default = arena.default
    wanted = role.rpartition("/")[2]
    trained = any(t for slot in arena.envs.values() for r, t in slot.seats.values() if r == wanted)
    model = entry.model or (POLICY if trained else BASE)
    warm = entry.temperature if entry.temperature is not None else (default.temperature if trained else 0.0)
    tokens = entry.max_tokens or default.max_tokens
    return Actor(role, entry.system_prompt, warm, tokens, model, entry.trainable, default.top_p)


def _check_roles(config: TrainConfig, arena: Arena) -> None:
    roles = {role for slot in arena.envs.values() for role, _ in slot.seats.values()}
    agents = {agent for slot in arena.envs.values() for agent in slot.seats}
    if unknown := set(config.train_roles) - roles:
        raise ConfigError(f"train_roles names {sorted(unknown)}; {config.title} has the roles {sorted(roles)}")
    known = roles | agents | {ANYBODY}
    for name in arena.actors:
        env, slash, role = name.rpartition("/")
        if role not in known or (slash and env not in arena.envs and name not in agents):
            raise ConfigError(f"actors names {name!r}; {config.title} has the roles {sorted(roles)}")
    if not any(slot.trained for slot in arena.envs.values()):
        raise ConfigError(f"{config.title} declares no seat trainable: there is nothing to train")


def make_credit(config: TrainConfig, arena: Arena) -> CreditAssigner:
    """The run's credit method; envs of `[[env]]` may name one of their own."""
    own = {e.label: from_settings(config.credit, e.credit) for e in config.env if e.credit and e.label in arena.envs}
    default = from_settings(config.credit)
    return PerEnv(default, own) if own else default


def make_league(config: TrainConfig, arena: Arena, like: Mapping[str, Any]) -> League | None:
    """The run's league, or None for mirror play."""
    if config.league.mode == "mirror":
        return None
    slots = list(arena.envs.values())
    symmetric = all(len({slot.seats[agent][0] for agent in slot.trained}) == 1 for slot in slots)
    league = League(config.league, config.seed, symmetric)
    if config.league.pool_from is not None:
        league.fill_from(config.league.pool_from, like, config.lora.scale)
    return league


def identity_of(model: str, tokenizer: Any, vocabulary: int) -> dict[str, Any]:
    """What a server must agree on: the keywords of `inference.client.check_compatible`."""
    from inference.identity import template_digest, tokenizer_digest
    from inference.loading import base_digest, find_model

    path = find_model(model)
    return {
        "base_digest": base_digest(path),
        "tokenizer_digest": tokenizer_digest(path),
        "template_digest": template_digest(tokenizer),
        "vocab": vocabulary,
    }


def load_object(path: str) -> Any:
    """`module:name` or `file.py:name` as the object it names.

    Raises:
        ConfigError: there is no such thing.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot import {path!r}: {error}; write module:name") from error
