"""The generating side of asynchronous training: receives jobs and new weights, returns episodes.

The same loop runs in a thread of the trainer (`ThreadGenerator`) and in a separate process (worker.py). New weights
are applied between engine steps, even within a batch: every turn records the version it was sampled from.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from legos_envs import Episode
from legos_train.rollout import filters
from legos_train.rollout.generator import LocalGenerator
from legos_train.rollout.jobs import Job


@dataclass(slots=True)
class JobBatch:
    """Jobs to play, with a number that is returned with their episodes."""

    number: int
    jobs: list[Job]
    retries: int = 0
    """How often drawn episodes are replayed, see filters.py."""


@dataclass(slots=True)
class Publish:
    """New weights for a name, as the backend passes them on to the engine; None removes the name."""

    name: str
    weights: Any
    version: int = 0


@dataclass(slots=True)
class BatchResult:
    """The answer to a `JobBatch`, or the error that ended it. `seconds`: duration of play."""

    number: int
    episodes: list[Episode] = field(default_factory=list)
    seconds: float = 0.0
    redrawn: int = 0
    error: BaseException | str | None = None


InboxItem = JobBatch | Publish | None


def serve_jobs(
    generator: LocalGenerator,
    inbox: queue.Queue[InboxItem],
    send: Callable[[BatchResult], None],
    clock: Callable[[], float],
) -> None:
    """Runs until the inbox returns None."""
    waiting: list[JobBatch] = []
    while True:
        message = waiting.pop(0) if waiting else inbox.get()
        if message is None:
            return
        if isinstance(message, Publish):
            _publish(generator, message)
            continue
        began = clock()
        ended = False

        def between() -> None:
            """Handles messages that have arrived; further jobs wait."""
            nonlocal ended
            while not inbox.empty():
                early = inbox.get()
                if early is None:
                    ended = True
                elif isinstance(early, Publish):
                    _publish(generator, early)
                else:
                    waiting.append(early)
            if ended:
                raise _Ended

        def play(jobs: Sequence[Job]) -> list[Episode]:
            out: dict[int, Episode] = {}
            with closing(generator.stream(jobs, out)) as steps:
                for _ in steps:
                    between()
            return [out[i] for i in range(len(jobs))]

        try:
            episodes, again = filters.retry(message.jobs, play, message.retries)
        except _Ended:
            return
        except Exception as error:
            send(BatchResult(message.number, error=error))
            continue
        send(BatchResult(message.number, episodes, clock() - began, again))


class _Ended(Exception):
    """The inbox returned None while episodes were being played."""


def _publish(generator: LocalGenerator, message: Publish) -> None:
    if message.weights is None:
        generator.unpublish(message.name)
    else:
        generator.publish(message.name, message.weights, message.version)
