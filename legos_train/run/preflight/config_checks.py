"""Checks for settings that do not fit the environments of a run, or would have no effect."""

from __future__ import annotations

from collections.abc import Collection

from inference.types import UNCHANGED
from legos_train.arena import Arena, EnvSlot
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.rollout.players import actors, replies


def check_format(config: TrainConfig, arena: Arena) -> None:
    """Raises ConfigError unless env objects have the action format that `reply` asks for."""
    wanted = replies.read_reply(config.reply).action_format
    for slot in arena.envs.values():
        own = getattr(slot.make().unwrapped, "action_format", wanted)
        if wanted and own != wanted:
            raise ConfigError(
                f"reply = {config.reply!r} asks for {wanted!r} actions, but {slot.name} reads {own!r}: add it with "
                f"args={{'action_format': {wanted!r}}}"
            )


def held_out(role: str, config: TrainConfig) -> bool:
    """Whether an actor is for an env that is only evaluated; `eval_tasks_of` handles it."""
    return any(role.startswith(f"{entry.label}/") for entry in config.eval.env)


def check_roles(config: TrainConfig, arena: Arena) -> None:
    """Raises ConfigError for roles, actors and learners that no env has, and if nothing would be trained."""
    roles = {role for slot in arena.envs.values() for role, _ in slot.seats.values()}
    agents = {agent for slot in arena.envs.values() for agent in slot.seats}
    if unknown := set(config.train_roles) - roles:
        raise ConfigError(f"train_roles names {sorted(unknown)}; {config.title} has the roles {sorted(roles)}")
    known = roles | agents | {actors.ANYBODY}
    for name in [name for name in arena.actors if not held_out(name, config)]:
        if not _names_one(name, known, arena):
            raise ConfigError(f"actors names {name!r}; {config.title} has the roles {sorted(roles)}")
    live = []
    _check_learners(config, arena)
    for slot in arena.envs.values():
        own = {role for role, _ in slot.seats.values()}
        if unknown := set(slot.train_roles or ()) - own:
            raise ConfigError(f"train_roles of {slot.name} names {sorted(unknown)}; it has the roles {sorted(own)}")
        live += [(slot, agent) for agent in arena.live(slot, arena.trained_roles(slot))]
    if not live:
        raise ConfigError(
            f"there is nothing to train in {config.title}: no seat meets all four conditions: declared trainable by "
            "the environment, played by the policy, trainable as an actor, and in train_roles"
        )
    if config.filter.keep == "winners" and all(len(slot.trained) < 2 for slot, _ in live):
        raise ConfigError("filter.keep = 'winners' compares the seats of an episode; with one seat use 'success'")
    for slot, agent in live:
        _check_sampling(config, arena, slot, agent)


def check_effects(config: TrainConfig, arena: Arena) -> None:
    """Raises ConfigError for settings without effect. Not called for resumed runs, which keep their settings."""
    every = list(config.learners.values()) or [config]
    if config.monitor.kl is not None and not any(one.loss.kl or one.loss.kl_end for one in every):
        raise ConfigError(
            "monitor.kl has no effect while loss.kl is 0, since no KL is measured; leave one of the two out"
        )
    if not config.league.rule.draws and config.league.opponents:
        raise ConfigError(
            f"league.opponents ({', '.join(config.league.opponents)}) have no effect in mirror play; give league.mode, "
            "such as 'fsp', or 'fixed' to play only against them"
        )
    own = arena is not None and arena.samplers  # which may be made with these settings
    if config.curriculum.sampler is None and not own and config.curriculum != type(config.curriculum)():
        raise ConfigError(
            "[curriculum] has no effect without a sampler; give curriculum.sampler, such as 'learnability', or leave "
            "its other settings out"
        )
    if arena.credit is not None and config.credit != type(config.credit)():
        raise ConfigError(
            f"[credit] has no effect beside arena.credit ({type(arena.credit).__name__}); leave one of the two out"
        )
    joining = [slot.name for slot in arena.envs.values() if slot.league]
    if joining and not config.league.rule.draws:
        raise ConfigError(
            f"league = true of {', '.join(joining)} has no effect in mirror play, which has no league; give "
            "league.mode, such as 'fsp', or leave it out"
        )
    roles = {role for slot in arena.envs.values() for role, _ in slot.seats.values()}
    if unknown := {role for one in every for role in one.credit.roles} - roles:
        raise ConfigError(f"credit.roles names {sorted(unknown)}; {config.title} has the roles {sorted(roles)}")


def _check_learners(config: TrainConfig, arena: Arena) -> None:
    """Checks that each trained seat has a learner, each learner a seat, and those that share seats an opponent."""
    if not arena.learners:
        return
    seats = [(slot, agent) for slot in arena.envs.values() for agent in slot.seats]
    names = {name for slot, agent in seats for name in (agent, slot.seats[agent][0])}
    held_out = {entry.label for entry in config.eval.env}
    for learner, roles in arena.learners.items():
        for role in roles:
            if role.rpartition("/")[0] not in held_out and not _names_one(role, names, arena):
                raise ConfigError(f"learner {learner!r} names {role!r}; {config.title} has the roles {sorted(names)}")
    live = [(slot, agent) for slot, agent in seats if agent in arena.live(slot, arena.trained_roles(slot))]
    if left := sorted({slot.seats[agent][0] for slot, agent in live if not arena.claimants(slot, agent)}):
        raise ConfigError(
            f"no learner plays {', '.join(left)}: name every trained role (--learner NAME=ROLE, or a table [[learner]])"
        )
    for learner in arena.learners:
        if all(learner not in arena.claimants(slot, agent) for slot, agent in live):
            raise ConfigError(f"learner {learner!r} has nothing to learn: none of its seats is trained by the policy")
    _check_rivals(config, arena)


def _check_rivals(config: TrainConfig, arena: Arena) -> None:
    """Checks that learners that share seats share whole sides, and that each has someone to play against."""
    shared = arena.rivals
    for slot in arena.envs.values() if shared else ():
        _check_sides(arena, slot)
    by_env = {name: arena.claims(slot) for name, slot in arena.envs.items()} if shared else {}
    if shared and (twice := {*arena.learners} & {*config.league.opponents}):
        raise ConfigError(
            f"learner {sorted(twice)[0]!r} is also the name of a player in league.opponents, and results are stored by "
            "name; rename one of them"
        )
    for name in arena.league_envs() if shared else ():
        if config.league.rule.needs_payoffs and len({*by_env[name]}) > 1:
            raise ConfigError(
                f"league.mode = {config.league.mode!r} with learners that share seats needs the same learners in all "
                f"seats of {name}; use another mode, or name all seats in their roles"
            )
    for entry in config.learner:
        met = [
            (name, other)
            for name, sides in by_env.items()
            for at, side in enumerate(sides)
            for place, other in enumerate(sides)
            if place != at and entry.name in side and len(other) > 1
        ]
        given = [name for name in ("opponents", "latest") if getattr(entry, name) not in ((), None)]
        if given and not (met if "opponents" in given else shared):
            raise ConfigError(
                f"{given[0]} of learner {entry.name!r} has no effect: no learners take turns in the seats that it "
                "plays against; leave it out"
            )
        for name, other in met:
            if entry.opponents and not {*other} & {*entry.opponents}:
                raise ConfigError(
                    f"learner {entry.name!r} has nobody to play against in {name}: the other seat is played by "
                    f"{' or '.join(other)}, and its opponents are {', '.join(entry.opponents)}"
                )


def _check_sides(arena: Arena, slot: EnvSlot) -> None:
    """Raises ConfigError unless all seats of a side have the same learners."""
    for side in arena.sides(slot):
        first, *others = [(agent, arena.claimants(slot, agent)) for agent in side]
        for agent, own in others:
            if own != first[1]:
                raise ConfigError(
                    f"the seats of {slot.seats[agent][0]!r} in {slot.name} are one side and need the same learners; "
                    f"{first[0]} has {', '.join(first[1])}, {agent} has {', '.join(own)}"
                )


def _names_one(word: str, names: Collection[str], arena: Arena) -> bool:
    """Whether a word is one of these roles or agents (`problem_0/solver_0` is one), alone or after `ENV/`."""
    inside = (word.removeprefix(f"{env}/") for env in arena.envs if word.startswith(f"{env}/"))
    return word in names or any(name in names for name in inside)


def _check_sampling(config: TrainConfig, arena: Arena, slot: EnvSlot, agent: str) -> None:
    """Ratios and KL assume the policy at temperature 1; samples from another distribution would silently bias them."""
    actor = actors.lookup(arena.players(slot), agent, slot.seats[agent][0], True)
    learners = [config.learners[name] for name in arena.claimants(slot, agent)] or [config]
    if actor.unusual and not all(one.loss.token_loss.imitates for one in learners):
        own, usual = (" and ".join(f"{n} {getattr(a, n):g}" for n in actor.unusual) for a in (actor, UNCHANGED))
        raise ConfigError(
            f"{slot.name}: {slot.seats[agent][0]!r} is trained but sampled at {own}. A policy gradient needs {usual} "
            "(only loss.name = 'sft' does not)"
        )
