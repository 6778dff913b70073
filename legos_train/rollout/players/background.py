"""Coroutines alongside a synchronous loop: a thread with an event loop, and a queue of results."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs awaitables in one event loop on a separate thread.

    `call` waits for one; `submit` labels one, and `ready` returns the labels with their results or exceptions.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._out: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name="legos-background", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The coroutine's result, or its exception raised here. It is cancelled on interruption or timeout."""
        future = self.start(coroutine)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine whose result is available only through the returned future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls a function in the loop, after earlier calls."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def submit(self, label: Any, awaitable: Awaitable[Any]) -> Future[Any]:
        """Starts an awaitable; `ready` reports its outcome. Cancelled ones are never reported."""
        self.pending += 1
        future = asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop)
        future.add_done_callback(lambda done: self._out.put((label, done)))
        return future

    def ready(self, timeout: float) -> list[tuple[Any, Any]]:
        """(label, result or exception) of everything that has ended; waits up to `timeout` seconds for the first."""
        found: list[tuple[Any, Any]] = []
        for label, done in self.drained(self._out, timeout):
            self.pending -= 1
            if not done.cancelled():
                found.append((label, done.exception() or done.result()))
        return found

    def close(self) -> None:
        """Cancels everything that still runs and ends the thread."""

        async def cancel() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if self._thread.is_alive():
            self.call(cancel())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @staticmethod
    def drained(entries: queue.SimpleQueue[T], timeout: float) -> Iterator[T]:
        """Drains a queue; waits up to `timeout` seconds for the first entry."""
        with suppress(queue.Empty):
            yield entries.get(timeout=timeout) if timeout else entries.get_nowait()
            while True:
                yield entries.get_nowait()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
