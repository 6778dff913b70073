"""Asynchronous actor-learner: episodes are generated while the learner is still working on the previous step.

The learner requests a bounded number of batches ahead, so an episode is at most `max_off_policy_steps` old when it is
trained on; any that is still older is dropped before use, and counted. Where they are played: batch_generators.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from legos_envs import Episode
from legos_train.disk import crashpoint
from legos_train.errors import GenerationError
from legos_train.run.batch_generators import make_batch_generator
from legos_train.run.stopping import Stopping
from legos_train.run.trainer import Trainer


def overlapped(trainer: Trainer, start: int, stopping: Stopping) -> Iterator[dict[str, Any]]:
    """The metrics records of the steps after `start`, with generation running ahead."""
    config, parts, arena = trainer.config, trainer.parts, trainer.parts.arena
    settings = config.asynchronous
    reuse, oldest = config.replay.reuse, settings.max_off_policy_steps
    if reuse > 1:
        oldest = min(oldest, config.replay.max_staleness)
    ahead = min(settings.queue, oldest // reuse)  # every earlier batch is used for `reuse` steps
    generator = make_batch_generator(parts)
    parts.sync.use(generator, parts.league)
    submitted = collected = asked = start  # `asked`: the step for which the last batch was requested
    lost = 0  # stale episodes since the last record
    retired: list[tuple[int, str]] = []  # (last batch that may need it, adapter)
    parts.sync.retire = lambda adapter: retired.append((submitted, adapter))
    while trainer.learner.step < config.steps:
        step = trainer.learner.step + 1
        stopping.check()
        if not parts.replay.due(step - 1):
            yield trainer.learn(0.0)
            if parts.stop_reason is not None:
                return
            continue
        while submitted <= collected + ahead and (used := step + (submitted - collected) * reuse) <= config.steps:
            asked = max(asked + 1, used)
            submitted += 1
            generator.submit(submitted, arena.jobs(trainer.next_requests(asked)))
        crashpoint("loop.step_begun")
        began = time.perf_counter()
        played = generator.collect(0.2)
        while played is None:
            stopping.check()
            played = generator.collect(0.2)
        waited = time.perf_counter() - began
        collected = played.number
        while retired and retired[0][0] <= played.number:
            generator.unpublish(retired.pop(0)[1])
        if played.error is not None:
            stopping.check()
            raise GenerationError(f"generating the episodes of step {played.number} failed: {played.error}")
        crashpoint("loop.step_played")
        fresh, stale = split_stale(played.episodes, trainer.learner.step, oldest)
        lost += stale
        if not fresh:
            continue
        trainer.redrawn = played.redrawn
        age = max(staleness(episode, trainer.learner.step) for episode in fresh)
        trainer.assign_credit(fresh, trainer.learner.step - age)
        record = trainer.learn(waited, played.seconds)
        record["dropped"]["stale_episodes"], lost = lost, 0
        record["seconds_generate"] = played.seconds
        yield record
        if parts.stop_reason is not None:
            return


def split_stale(episodes: Sequence[Episode], version: int, limit: int) -> tuple[list[Episode], int]:
    """The episodes without trained turns more than `limit` versions old, and the number of others."""
    fresh = [episode for episode in episodes if staleness(episode, version) <= limit]
    return fresh, len(episodes) - len(fresh)


def staleness(episode: Episode, version: int) -> int:
    """The number of optimiser steps between its oldest trained turn and `version`."""
    versions = [
        turn.policy_version
        for trajectory in episode.trajectories.values()
        if trajectory.trainable
        for turn in trajectory.turns
        if turn.policy_version is not None
    ]
    return version - min(versions, default=version)
