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

from legos_envs import Episode
from legos_envs.table import keyed_generator
from legos_train.arena.request import EnvSlot, EpisodeRequest, TaskSampler, make_slot
from legos_train.arena.seat_plan import SeatPlan
from legos_train.errors import ConfigError
from legos_train.rollout import Job
from legos_train.rollout.players import Actor, actors

if TYPE_CHECKING:
    from legos_train.arena.artifact_store import ArtifactStore
    from legos_train.credit import CreditAssigner
    from legos_train.rollout import Generator


class Arena(SeatPlan):
    """Holds actors, envs and stores; draws requests; plays them.

    Args:
        model: the base model, for `generate_rollouts` outside of a training run.
        seed: seed of all random draws.
        batch_size: episodes per `get_batch`.
        group_size: episodes per seed in `get_batch`.

    In a training run `train` sets all four from its config.
    """

    def __init__(self, model: str = "tiny", *, seed: int = 0, batch_size: int = 64, group_size: int = 1):
        self.seed, self.batch_size, self.group_size = seed, batch_size, group_size
        self.step = 1
        super().__init__(model)
        self.stores: dict[str, ArtifactStore] = {}
        self.samplers: list[TaskSampler] = []
        self._extras: dict[str, EnvSlot] = {}
        self.generator: Generator | None = None
        self._alone: Generator | None = None
        self.credit: CreditAssigner | None = None
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
                players = {**players, **self.met(slot, roles, self.step, numbers[key])}
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
