"""The arena holds actors, environments and stores, decides what is played next, and plays it.

    arena = Arena()
    arena.add_actor(Actor("judge", model="base", temperature=0.0, trainable=False))
    arena.add_env("debate", "Debate-v0", weight=2.0)
    arena.add_env("kuhn", "KuhnPoker-v0")
    train(arena, config)

Override `get_batch` for your own curriculum. It should draw only from `self.rng`, so that a resumed run repeats an
uninterrupted one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pettingzoo import AECEnv

from inference import BUNDLED
from legos_envs import Episode
from legos_envs.table import keyed_generator
from legos_train.arena.request import JUDGE, EnvSlot, EpisodeRequest, TaskSampler, make_slot
from legos_train.errors import ConfigError
from legos_train.players import Actor, actors
from legos_train.rollout import Job

if TYPE_CHECKING:
    from legos_train.arena.artifact_store import ArtifactStore
    from legos_train.credit import CreditAssigner
    from legos_train.league import League
    from legos_train.rollout import Generator


class Arena:
    """Holds actors, envs and stores; draws requests; plays them.

    Args:
        model: the base model, for `generate_rollouts` outside of a training run.
        seed: seed of all random draws.
        batch_size: episodes per `get_batch`.
        group_size: episodes per seed in `get_batch`.

    In a training run `train` sets all four from its config.
    """

    def __init__(self, model: str = "tiny", *, seed: int = 0, batch_size: int = 64, group_size: int = 1):
        self.model, self.seed, self.batch_size, self.group_size = model, seed, batch_size, group_size
        self.step = 1
        self.actors: dict[str, Actor] = {}
        self.envs: dict[str, EnvSlot] = {}
        self.stores: dict[str, ArtifactStore] = {}
        self.samplers: list[TaskSampler] = []
        self.train_roles: tuple[str, ...] = ()
        self.learners: dict[str, tuple[str, ...]] = {}
        """Several policies instead of one: by name, the roles or agents each plays; `ENV/ROLE` is for one env only."""
        self.default = Actor(actors.ANYBODY, max_tokens=actors.default_tokens(model))
        self._extras: dict[str, EnvSlot] = {}
        self.generator: Generator | None = None
        self._alone: Generator | None = None
        self.credit: CreditAssigner | None = None
        self.league: League | None = None
        self.from_config = False
        """Whether all envs came from a config, so that another process can make them from their ids."""
        self.configured: dict[str, Any] = {"actors": set(), "samplers": [], "stores": set()}
        """What else came from a config: roles, samplers and the names of stores. See `forget_config`."""

    # --- what there is -----------------------------------------------------------------------------------------------

    def add_actor(self, actor: Actor) -> None:
        """Sets who plays a role; a later call replaces an earlier one."""
        self.actors[actor.role] = actor
        self.configured["actors"].discard(actor.role)

    def add_env(
        self,
        name: str,
        env_or_id: str | AECEnv | Callable[..., AECEnv] | None = None,
        weight: float = 1.0,
        *,
        args: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        train_roles: tuple[str, ...] | None = None,
        credit: str | None = None,
        league: bool | None = None,
    ) -> None:
        """Adds an environment.

        Args:
            name: what requests, actors and metrics call it.
            env_or_id: an id (by default the name); an env, which is copied for concurrent episodes; or a class or
                function that makes one.
            weight: how often `get_batch` draws it, relative to the others.
            args: constructor arguments.
            options: passed to every `reset`.
            train_roles: roles to train on, instead of the arena's.
            credit: a credit method for this env's episodes, instead of the run's.
            league: whether members of the league play here; None: where the policy trains two seats or more.

        Raises:
            ValueError: the weight is not positive, or the name is taken.
        """
        if not weight > 0:
            raise ValueError(f"the weight of env {name!r} must be positive, got {weight!r}")
        if name in self.envs:
            raise ValueError(f"the arena already has an env called {name!r}; give this one another name")
        source = name if env_or_id is None else env_or_id
        self.envs[name] = slot = make_slot(name, source, weight, dict(args or {}), dict(options or {}), train_roles)
        slot.credit, slot.league, slot.args = credit, league, dict(args or {})
        slot.id = source if isinstance(source, str) else None

    def add_store(self, name: str, store: ArtifactStore) -> None:
        """Adds an artifact store; its content becomes part of every checkpoint."""
        self.stores[name] = store

    def add_sampler(self, sampler: TaskSampler) -> None:
        """Adds a task sampler, which may change the options of requests and learns from finished episodes."""
        self.samplers.append(sampler)

    def forget_config(self) -> None:
        """Removes what an earlier run's config added, so that the next run only has what its own config adds."""
        self.actors = {role: actor for role, actor in self.actors.items() if role not in self.configured["actors"]}
        self.samplers = [one for one in self.samplers if all(one is not old for old in self.configured["samplers"])]
        self.stores = {name: store for name, store in self.stores.items() if name not in self.configured["stores"]}
        self.envs = {} if self.from_config else self.envs
        self.from_config = False
        self.configured = {"actors": set(), "samplers": [], "stores": set()}

    # --- what is played ----------------------------------------------------------------------------------------------

    @property
    def rng(self) -> np.random.Generator:
        """A random generator for this step's draws; every access within a step returns it in the same initial state."""
        return keyed_generator(self.seed, f"episodes of step {self.step}")

    def get_batch(self) -> list[EpisodeRequest]:
        """The episodes of the next step: `batch_size` of them in groups of `group_size`, envs drawn by weight."""
        groups = self.batch_size // self.group_size
        rng = self.rng
        seeds = rng.integers(2**31, size=groups).tolist()
        names = list(self.envs)
        weights = np.array([slot.weight for slot in self.envs.values()])
        drawn = rng.choice(len(names), size=groups, p=weights / weights.sum()) if len(names) > 1 else [0] * groups
        out: list[EpisodeRequest] = []
        for number, (seed, index) in enumerate(zip(seeds, drawn, strict=True)):
            own = dict(self.envs[names[index]].options) or None  # which a sampler leaves as they are
            request = EpisodeRequest(names[index], seed=seed, group=f"{self.step}/{number}", options=own)
            for place, sampler in enumerate(self.samplers):
                task_rng = keyed_generator(self.seed, f"task {number} of step {self.step} for sampler {place}")
                request = sampler.prepare(request, task_rng, self.step)
            out += [request] * self.group_size
        return out

    async def generate_rollouts(self, requests: Sequence[EpisodeRequest]) -> list[Episode]:
        """Plays requests concurrently; returns their episodes in the same order.

        Outside of a training run the base model plays the policy's seats. The engine runs on the calling thread.
        """
        if self.generator is not None:
            return self.generator.run(self.jobs(requests))
        if self._alone is None:
            self._alone = self._stand_alone()
        return self._alone.run([replace(job, train_roles=()) for job in self.jobs(requests)])

    def learn(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Called with the episodes of each step, from which stores and samplers learn. Returns numbers to log."""
        numbers: dict[str, float] = {}
        for sampler in self.samplers:
            numbers |= sampler.learn(episodes, self.step)
        return numbers

    def jobs(self, requests: Sequence[EpisodeRequest]) -> list[Job]:
        """The requests as jobs, with seeds, groups and players filled in."""
        drawn = keyed_generator(self.seed, f"seeds of step {self.step} from 0")
        groups: dict[str, int] = {}
        numbers: dict[tuple[str, str], int] = {}  # groups by env, for the league's balance of seats
        counts: dict[str, int] = {}
        seeds: dict[tuple[str, str], int] = {}
        seated: dict[str, dict[str, Actor]] = {}
        out = []
        for place, request in enumerate(requests):
            slot = self.slot(request.env)
            if request.seed is not None:
                seed = int(request.seed)  # it may be one of NumPy's
            elif request.group is None:
                seed = int(drawn.integers(2**31))
            else:
                key = (slot.name, str(request.group))
                seed = seeds[key] = seeds[key] if key in seeds else int(drawn.integers(2**31))
            options = {**slot.options, **(request.options or {})}
            if request.group is None:
                same = json.dumps([request.env, dict(request.kwargs), seed, options], sort_keys=True, default=str)
                group: int | str = f"{self.step}/{groups.setdefault(same, len(groups))}"
            else:
                group = request.group
            if (key := (slot.name, str(group))) not in numbers:
                numbers[key] = counts[slot.name] = counts.get(slot.name, -1) + 1
            roles = request.train_roles if request.train_roles is not None else slot.train_roles
            if roles and (unknown := {*roles} - (there := {role for role, _ in slot.seats.values()})):
                raise ConfigError(
                    f"train_roles of {slot.name} names {sorted(unknown)}; it has the roles {sorted(there)}"
                )
            if roles is None and self.train_roles:
                roles = self.train_roles
            if slot.name not in seated:
                seated[slot.name] = self.players(slot)
            players = seated[slot.name]
            if self.league is not None and roles != ():
                players = dict(players)
                agents = self.live(slot, roles)
                plan = self.league.plan(
                    self.step, numbers[key], agents, {a: slot.seats[a][0] for a in agents}, slot.name
                )
                for agent, member in plan.items():
                    players[agent] = self.opponent(slot, agent, member)
            out.append(Job(slot.name, seed, players, dict(request.kwargs), options, group, place, roles))
        return out

    def of_code(self, configured: Collection[str] = (), *, sampled: bool = False) -> str:
        """What a run takes from this arena rather than from its config, in words; empty if there is nothing.

        Args:
            configured: the roles of actors that the config names.
            sampled: whether it also names a task sampler.
        """
        parts = [] if type(self) is Arena else [f"class {type(self).__qualname__}"]
        for role, actor in sorted(self.actors.items()):
            if role not in configured:
                model = actor.model if isinstance(actor.model, str) else _name_of(actor.model)
                plain = replace(actor, role="*", model=actors.POLICY, learner=None)
                own = f" with settings {zlib.crc32(repr(plain).encode()):08x}" if plain != Actor("*") else ""
                parts.append(f"actor {role}={model}{own}")
        if self.credit is not None:
            parts.append(f"credit {type(self.credit).__qualname__}")
        samplers = [] if sampled else self.samplers
        return "; ".join([*parts, *(f"sampler {type(one).__qualname__}" for one in samplers)])

    def live(self, slot: EnvSlot, roles: tuple[str, ...] | None = None) -> list[str]:
        """The agents that the live policy plays and learns from, limited to `roles` if given."""
        players = self.players(slot)
        out = []
        for agent in slot.trained:
            role = slot.seats[agent][0]
            actor = actors.lookup(players, agent, role, True)
            if actor.model == actors.POLICY and actor.trainable and (roles is None or role in roles):
                out.append(agent)
        return out

    def league_envs(self) -> dict[str, bool]:
        """The envs in which members of a league play, and whether all seats that are trained there have one role."""
        found = {}
        for slot in self.envs.values():
            if slot.league is not False and len(live := self.live(slot, self.trained_roles(slot))) > 1:
                found[slot.name] = len({slot.seats[agent][0] for agent in live}) == 1
        return found

    def trained_roles(self, slot: EnvSlot) -> tuple[str, ...] | None:
        """The roles that are trained in an env: its own setting, else the arena's; None: all."""
        return slot.train_roles if slot.train_roles is not None else (self.train_roles or None)

    def slot(self, name: str) -> EnvSlot:
        """The env with that name. An id that was not added can be requested, but `get_batch` never draws it.

        Raises:
            KeyError: it is neither an env of the arena nor a registered id.
        """
        if name not in self.envs:
            if name not in self._extras:
                self._extras[name] = make_slot(name, name, 1.0, {}, {}, None)
            return self._extras[name]
        return self.envs[name]

    def players(self, slot: EnvSlot) -> dict[str, Actor]:
        """Who plays in an env, by role: its actors; otherwise the policy, or the base at temperature 0 for judges.

        A bundled model cannot judge, so code does if the env has `JUDGE`.
        """
        actor = self.default
        judge = JUDGE if slot.can_judge and self.model in BUNDLED else actors.BASE
        out = {
            actors.ANYBODY: actor,
            actors.UNTRAINED: replace(actor, model=judge, temperature=0.0, trainable=False),
        }
        prefix = f"{slot.name}/"
        out |= {role: given for role, given in self.actors.items() if role in slot.seats or "/" not in role}
        for role, given in self.actors.items():  # what is said for this env alone comes last
            if role.startswith(prefix):
                out[role.removeprefix(prefix)] = given
        out = {k: a if a.max_tokens else replace(a, max_tokens=self.default.max_tokens) for k, a in out.items()}
        if self.learners:
            for agent, (role, trained) in slot.seats.items():
                actor = actors.lookup(out, agent, role, trained)
                if actor.model == actors.POLICY:
                    out[agent] = replace(actor, learner=self.learner_of(slot, agent) or next(iter(self.learners)))
        return out

    def learner_of(self, slot: EnvSlot, agent: str) -> str | None:
        """Which of several learners plays a seat of the policy; a setting for its env alone takes precedence."""
        role = slot.seats[agent][0]
        for name in (f"{slot.name}/{agent}", f"{slot.name}/{role}", agent, role):
            for learner, roles in self.learners.items():
                if name in roles:
                    return learner
        return None

    @property
    def judged_by_code(self) -> list[str]:
        """The names of the envs that are judged by `JUDGE`, since no other judge was configured."""
        out = []
        for slot in self.envs.values():
            players = self.players(slot)
            seats = [(a, role) for a, (role, trained) in slot.seats.items() if not trained]
            if any(actors.lookup(players, a, role, False) == players[actors.UNTRAINED] for a, role in seats):
                out += [slot.name] if players[actors.UNTRAINED].model == JUDGE else []
        return out

    def opponent(self, slot: EnvSlot, agent: str, member: str) -> Actor:
        """The actor for a league member in a seat: a snapshot's adapter, or the player that its name refers to."""
        given = self.players(slot)
        actor = given.get(agent) or given.get(slot.seats[agent][0], given[actors.ANYBODY])
        known = self.league is not None and member in self.league.weights
        actor = replace(actor, model=f"{actors.LEAGUE}{member}") if known else actor.with_model(member)
        return replace(actor, trainable=False)

    def _stand_alone(self) -> Generator:
        from inference import Engine
        from inference.text import Renderer
        from legos_train.rollout import LocalGenerator

        engine = Engine.load(self.model)
        makers = {name: slot.make for name, slot in self.envs.items()}
        renderer = Renderer(engine.tokenizer)
        return LocalGenerator(engine, renderer, makers, scale=1.0, context=engine.context, policy=None)

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The arena's state in a checkpoint, as JSON values. To keep more, override both methods and call `super()`."""
        return {
            "stores": {name: store.dump() for name, store in self.stores.items()},
            "samplers": [sampler.state_dict() for sampler in self.samplers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, store in self.stores.items():
            store.load(state["stores"][name])
        for sampler, kept in zip(self.samplers, state["samplers"], strict=True):
            sampler.load_state_dict(kept)

    def close(self) -> None:
        """Closes the engine that `generate_rollouts` started, if any."""
        if self._alone is not None:
            self._alone.close()
            self._alone = None


def _name_of(player: object) -> str:
    return str(getattr(player, "__qualname__", type(player).__qualname__))
