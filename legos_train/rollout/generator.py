"""Generators of episodes: they take jobs, return finished episodes, and receive new weights in between.

`LocalGenerator` plays in this process, on its own engine or on servers; `worker.py` puts one into a second
process and `batch_generators.py` into a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Generator as Steps
from contextlib import closing
from functools import partial
from typing import Any, Protocol

from pettingzoo import AECEnv

import legos_envs
from inference import Engine
from inference.text import Renderer
from legos_envs import Episode
from legos_train.rollout.jobs import Job, mark_untrained
from legos_train.rollout.players import RemoteEngine, Roster, actors
from legos_train.rollout.rollouts import Rollouts

MakeEnv = Callable[..., AECEnv]


class WeightReceiver(Protocol):
    """Receives new weights: anything that plays, in this process or elsewhere."""

    def publish(self, name: str, weights: Any, version: int) -> None:
        """Publishes new weights under an adapter's name, for all later requests.

        Args:
            name: the adapter's.
            weights: what a backend passes on to its engine, opaque to all between them.
            version: optimiser steps in them.
        """
        ...

    def unpublish(self, name: str) -> None: ...

    def drop_caches(self) -> None: ...

    def close(self) -> None: ...


class Generator(WeightReceiver, Protocol):
    """Plays jobs, and waits for their episodes."""

    def run(self, jobs: Sequence[Job]) -> list[Episode]:
        """The episodes, in the order of the jobs, with untrainable parts marked."""
        ...


class LocalGenerator:
    """Plays jobs in this process.

    Args:
        engine: the engine of the policy; a `RemoteEngine` plays on servers instead.
        renderer: how conversations become tokens.
        envs: label -> factory of the env (called with a job's args).
        scale: LoRA scale of published weights.
        context: maximum tokens of a prompt and its action.
        mode: what happens to running requests on a publish, see `Engine.publish`.
        policy: the live policy's adapter; None: the base model.
        check: called between engine steps; an exception in it ends the batch.
        report: likewise called between steps, with the numbers of finished and of all episodes.
    """

    def __init__(
        self,
        engine: Engine | RemoteEngine,
        renderer: Renderer,
        envs: Mapping[str, MakeEnv],
        *,
        scale: float,
        context: int,
        concurrency: int = 1024,
        mode: str = "pin",
        check: Callable[[], None] | None = None,
        policy: str | None = actors.POLICY,
        report: Callable[[int, int], None] | None = None,
    ):
        self.engine, self.scale, self.mode, self.check, self.report = engine, scale, mode, check, report
        self.envs = dict(envs)
        self.roster = Roster(engine, renderer, context, policy)
        self.rollouts = Rollouts(self.make_env, concurrency)

    def make_env(self, label: str, **args: Any) -> AECEnv:
        return (self.envs.get(label) or env_maker(label, {}))(**args)

    def run(self, jobs: Sequence[Job]) -> list[Episode]:
        episodes: dict[int, Episode] = {}
        with closing(self.stream(jobs, episodes)) as steps:
            for _ in steps:
                if self.check is not None:
                    self.check()
                if self.report is not None:
                    self.report(len(episodes), len(jobs))
        return [episodes[index] for index in range(len(jobs))]

    def stream(self, jobs: Sequence[Job], out: dict[int, Episode]) -> Steps[None]:
        """Like `run`, yielding after every engine step; `out` fills with episodes by index."""

        def done(index: int, episode: Episode, declared: Mapping[str, bool]) -> None:
            mark_untrained(episode, jobs[index], declared)
            out[index] = episode

        return self.rollouts.stream(self._seated(jobs), done)

    def _seated(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs with actors replaced by players, which jobs with the same actors share."""
        seated: dict[tuple[str, int], Mapping[str, Any]] = {}
        out = []
        for job in jobs:
            key = job.env, id(job.players)
            if key not in seated:
                make = partial(self.make_env, job.env, **job.args)
                seated[key] = self.roster.players(job.players, job.env, make)
            out.append(job.seated(seated[key]))
        return out

    def publish(self, name: str, weights: Any, version: int) -> None:
        self.engine.publish(name, weights, scale=self.scale, version=version, mode=self.mode)  # type: ignore[arg-type]

    def unpublish(self, name: str) -> None:
        self.engine.unpublish(name)

    def drop_caches(self) -> None:
        if isinstance(self.engine, Engine):
            self.engine.drop_caches()
        self.roster.drop_caches()

    def close(self) -> None:
        self.rollouts.close()
        self.roster.close()
        self.engine.close()


def env_maker(env_id: str, args: Mapping[str, Any]) -> MakeEnv:
    """Makes a registered env; a job's own args override those given here."""

    def make(**more: Any) -> AECEnv:
        return legos_envs.make(env_id, **{**args, **more})

    return make
