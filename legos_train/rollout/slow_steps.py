"""Steps that may take a second or two run in threads while other episodes play.

A step is awaited for the longest time that a legitimate one takes, so the schedule of a batch depends on the clock only
if a model wrote a formula or a program that does not terminate.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from pettingzoo import AECEnv

from legos_train.rollout.players import Background

QUICK = 0.25
"""Seconds to wait for a step, unless another one has taken longer and is still running."""


def may_take_long(env: AECEnv) -> bool:
    """Whether an env declares that its steps compare formulas or run programs."""
    return bool(getattr(env.unwrapped, "slow_steps", False))


class SlowSteps:
    """Runs the steps of many episodes in threads; those of one episode run in order."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "legos-slow-step")
        self._steps: dict[int, deque[Callable[[], None]]] = {}
        """By the id of an episode being stepped: its remaining steps."""
        self._lock = threading.Lock()
        self._out: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.running = 0
        """Number of episodes that `ended` has yet to report."""

    def take(self, episode: Any, step: Callable[[], None]) -> bool:
        """Runs a step of an episode; returns whether it has finished. If not, `ended` reports it later.

        Raises:
            Exception: the error raised by the step.
        """
        with self._lock:
            if id(episode) in self._steps:
                self._steps[id(episode)].append(step)
                return False
            self._steps[id(episode)] = deque([step])
        future = self._threads.submit(self._run, episode)
        if not wait_for([future], 0 if self.running else QUICK).done:
            self.running += 1
            future.add_done_callback(lambda done: self._report(episode, done))
            return False
        error = future.result()
        if error is not None:
            raise error
        return True

    def busy(self, episode: Any) -> bool:
        """Whether a thread is stepping an episode, which must not be touched then."""
        with self._lock:
            return id(episode) in self._steps

    def ended(self, timeout: float) -> list[tuple[Any, BaseException | None]]:
        """The episodes whose steps have ended since, each with its error if it failed; waits for the first."""
        found = list(Background.drained(self._out, timeout))
        self.running -= len(found)
        return found

    def close(self) -> None:
        """Waits for running steps."""
        self._threads.shutdown()

    def _run(self, episode: Any) -> BaseException | None:
        error: BaseException | None = None
        while True:
            with self._lock:
                if error is not None or not self._steps[id(episode)]:
                    del self._steps[id(episode)]
                    return error
                step = self._steps[id(episode)].popleft()
            try:
                step()
            except BaseException as raised:
                error = raised

    def _report(self, episode: Any, done: Future[BaseException | None]) -> None:
        self._out.put((episode, done.result()))
