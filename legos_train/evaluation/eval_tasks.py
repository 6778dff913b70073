"""The evaluations of a run, on its own and held-out envs. Each is a task: an env, its players, its games."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import AECEnv

from legos_envs import InfoSet, exact
from legos_train.arena import Arena, EnvSlot, actor_of
from legos_train.config import TrainConfig, sections
from legos_train.errors import ConfigError
from legos_train.evaluation.exact_values import MANY_POSITIONS, exact_names, solvable
from legos_train.evaluation.outcomes import competitive, sides_by_info
from legos_train.observe import eval_numbers
from legos_train.rollout.players import Actor, actors

SELF = "self"


@dataclass(slots=True)
class EvalTask:
    """An env to evaluate.

    Attributes:
        slot: the env and its seats.
        env: one instance of it, after a reset.
        info_sets: the information sets of a game that is evaluated exactly, else None.
        players: its players, as from `Arena.players`.
        prefix: prefix of the names of its metrics.
        games, samples, seed: as for `legos eval`.
        every: steps between evaluations; 0: only before the first step and after the last.
        opponent: the policy in the other seats; None: see `rival`.
        held_out: whether the run never trains on it.
        again: whether another task stands for the same env, with the first of the learners that share its seats.
    """

    slot: EnvSlot
    env: AECEnv
    info_sets: Sequence[InfoSet] | None
    players: Mapping[str, Actor]
    prefix: str
    games: int
    samples: int
    seed: int
    every: int
    opponent: str | None = None
    held_out: bool = False
    again: bool = False

    @property
    def own(self) -> list[str]:
        """The agents that the policy plays."""
        seats = self.slot.seats.items()
        return [a for a, (role, t) in seats if actors.lookup(self.players, a, role, t).model == actors.POLICY]

    @property
    def sides(self) -> list[tuple[str, ...]]:
        """The seats that the policy may take together, one side after the other."""
        return [side for side in sides_by_info(self.env.infos) if set(side) <= set(self.own)]

    @property
    def exactly(self) -> bool:
        """Whether it is evaluated from probabilities rather than games."""
        return self.info_sets is not None and self.own == list(self.slot.seats)

    @property
    def contest(self) -> bool:
        """Whether the policy's sides compete and no exact number measures its strength."""
        return competitive(self.env) and not self.exactly and len(self.sides) > 1

    @property
    def rival(self) -> str | None:
        """The opponent in the games: by default random play if moves are listed, else, in a contest, the base, since a
        policy against itself breaks even; None: the policy plays all seats.
        """
        if self.opponent is not None:
            return None if self.opponent == SELF else self.opponent
        listed = self.env.infos[self.env.agent_selection].get("legal_actions")
        return "random" if listed and len(self.sides) > 1 else actors.BASE if self.contest else None

    @property
    def score(self) -> str:
        """The name of the result of its games: `vs_random`, a win rate against the base, or `return`."""
        if self.rival == actors.BASE and self.contest:
            return eval_numbers.BASE_WINS
        return "return" if self.rival is None else f"vs_{re.sub(r'[^A-Za-z0-9]+', '_', self.rival).strip('_')}"

    def names(self) -> list[str]:
        """The metrics it may produce that can be better or worse, without the prefix."""
        if self.exactly:
            return exact_names(self.env)  # type: ignore[arg-type]
        alone = len(self.own) == 1 and hasattr(self.env.unwrapped, "problems")
        answers = ["accuracy", *([f"pass@{self.samples}"] if self.samples > 1 else [])] if alone else []
        trained = {role for role, t in self.slot.seats.values() if t}
        roles = (
            [eval_numbers.ROLE_RETURN + role for role in sorted(trained)]
            if self.rival is None and len(trained) > 1
            else []
        )
        endings = ["win", "loss"] if self.rival is not None and competitive(self.env) else ["success"]
        return [self.score, *answers, *roles, *endings, "invalid", "truncated", "unscored"]


def followed(best: str | None, tasks: Sequence[EvalTask]) -> str:
    """The metric that selects `best`: `eval.best`, which may be `name`, `ENV/name` or `ENV.name`; None: the first of
    the first task.

    Raises:
        ConfigError: the tasks have no such metric; the message lists theirs.
    """
    known = [task.prefix + name for task in tasks for name in task.names()]
    dotted = {".".join(name.rsplit("/", 1)): name for name in known}
    if best is None or best in known:
        return best or known[0]
    if best in dotted:
        return dotted[best]
    near = difflib.get_close_matches(best, dotted, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(f"eval.best = {best!r} is not a metric of this run{hint} Available: {', '.join(dotted)}")


def eval_tasks_of(arena: Arena, config: TrainConfig) -> list[EvalTask]:
    """The tasks of a run: its envs, then the held-out ones. Where learners share seats, there is one for each of them.

    Raises:
        ConfigError: a held-out env cannot be created as configured; the message names it.
    """
    settings, many, out = config.eval, len(arena.envs) > 1, []
    for name, slot in arena.envs.items():
        env, info_sets = _opened(slot)
        every = settings.every if _cheap(info_sets) else 0
        prefix = f"{name}/" if many else ""
        live = arena.live(slot, arena.trained_roles(slot))
        shared = {agent: own for agent in live if len(own := arena.claimants(slot, agent)) > 1}
        for place in range(max(map(len, shared.values()), default=1)):
            players = arena.players(slot, place)
            who = "+".join(dict.fromkeys(str(players[agent].learner) for agent in shared))
            named = replace(slot, name=f"{name}/{who}") if place else slot
            begins = f"{prefix}{who}/" if who else prefix
            out.append(EvalTask(named, env, info_sets, players, begins, settings.games, 1, config.seed, every))
            out[-1].again = place > 0
    begun = {task.prefix for task in out if task.prefix}
    for entry in settings.env:
        out.append(_held_out(entry, arena, config))
        if out[-1].prefix in begun:
            raise ConfigError(
                f"eval.env {entry.label!r} is also the name of a learner, and metrics are stored by name; rename one "
                "of them"
            )
    return out


def _held_out(entry: sections.HeldOutEntry, arena: Arena, config: TrainConfig) -> EvalTask:
    own, settings = Arena(arena.model), config.eval
    own.learners = arena.learners
    own.default = replace(arena.default, **entry.over(arena.default, f"eval.env {entry.label!r}"))
    try:
        own.add_env(entry.label, entry.id, args=config.formatted(entry), options=entry.options)
        slot = own.envs[entry.label]
        env, info_sets = _opened(slot, played=entry.opponent is not None)
    except (ValueError, TypeError, LookupError, OSError, ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError):  # the command line names the missing extra
            raise
        text = error.args[0] if isinstance(error, LookupError) and error.args else error
        raise ConfigError(f"eval.env {entry.label!r} cannot be created: {text}") from error
    _add_actors(own, entry, arena, config)
    played_only = (*sections.OF_A_SEAT, "games", "samples", "seed")
    plain = type(entry)(id=entry.id)
    given = [name for name in played_only if getattr(entry, name) != getattr(plain, name)]
    if info_sets is not None and given:
        raise ConfigError(
            f"eval.env {entry.label!r}: {', '.join(given)} have no effect, since its numbers are computed (at "
            "temperature 1); leave them out, or give opponent to play games"
        )
    cheap = settings.every if _cheap(info_sets) else 0
    task = EvalTask(
        slot,
        env,
        info_sets,
        own.players(slot),
        prefix=f"{entry.label}/",
        games=settings.games if entry.games is None else entry.games,
        samples=entry.samples,
        seed=entry.seed,
        every=cheap if entry.every is None else entry.every,
        opponent=entry.opponent,
        held_out=True,
    )
    if not task.own:
        raise ConfigError(f"eval.env {entry.label!r}: its actors take every seat; leave one to the policy")
    if task.rival is not None and len(task.sides) < 2:
        raise ConfigError(
            f"eval.env {entry.label!r}: opponent = {entry.opponent!r} has no seat, because the policy plays "
            f"{entry.id} alone; leave opponent out"
        )
    return task


def _add_actors(own: Arena, entry: sections.HeldOutEntry, arena: Arena, config: TrainConfig) -> None:
    """Adds the actors named for this env; actors for a role of the run's envs do not apply to it."""
    slot, prefix = own.envs[entry.label], f"{entry.label}/"
    for role, given in config.actors.items():
        if role.startswith(prefix):
            own.add_actor(actor_of(role, given, own.default, [slot]))
    for role, actor in arena.actors.items():
        if role.startswith(prefix):
            own.add_actor(actor)
    known = {*slot.seats, *(role for role, _ in slot.seats.values()), actors.ANYBODY}
    for role in own.actors:
        if role.removeprefix(prefix) not in known:
            raise ConfigError(f"actors names {role!r}; {entry.label} has the roles {', '.join(sorted(known))}")


def _opened(slot: EnvSlot, *, played: bool = False) -> tuple[Any, Sequence[InfoSet] | None]:
    """An instance after a reset and, for a solvable game that is not `played`, its information sets."""
    env: Any = slot.make()
    env.reset(seed=0, options=slot.options)
    return env, exact.info_sets(env.game) if not played and solvable(env) else None


def _cheap(info_sets: Sequence[InfoSet] | None) -> bool:
    """Whether an evaluation is cheap enough to run every few steps."""
    return info_sets is None or len(info_sets) <= MANY_POSITIONS
