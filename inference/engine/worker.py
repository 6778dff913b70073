"""An engine in its own thread, the only one that touches MLX; and the same for asyncio.

The thread takes commands between steps and sleeps while idle. Events are handed over once per step, not once per token.
`AsyncEngine` offers coroutines: a request is an asynchronous iterator, and leaving the iterator aborts the request.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from inference.engine.engine import Engine
from inference.types import Completion, Delta, InferenceError, Request, UnknownRequest

T = TypeVar("T")
Event = Delta | Completion
Sink = Callable[[list[tuple[int, Event]]], None]
"""Receives a step's events in order, as (request id, event). Called in the engine's thread."""

logger = logging.getLogger(__name__)


class Worker:
    """Runs an engine in a thread. `start` creates it there; `close` ends it and frees MLX's streams.

    Args:
        make_engine: called once, in the thread.
        sink: receives every step's events.
    """

    def __init__(self, make_engine: Callable[[], Engine], sink: Sink) -> None:
        self._make, self._sink = make_engine, sink
        self._commands: queue.SimpleQueue[tuple[Future[Any], Callable[[Engine], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.ready: Future[None] = Future()
        """Done when requests can be accepted; fails with any exception from creating the engine."""
        self._closing = self._over = False
        self.paused = False
        self.busy = False
        self.last_step = time.monotonic()
        self.steps = 0
        self.path: str | None = None
        """`Engine.path`, once the engine exists: how it runs its model."""
        self.lookahead: bool | None = None
        """`Engine.lookahead`, likewise."""

    def start(self) -> None:
        """Starts creating the engine. `ready` is done once it exists."""
        self._thread.start()

    def call(self, function: Callable[[Engine], T]) -> Future[T]:
        """Runs a function of the engine in its thread, between steps. InferenceError if that thread is not running."""
        if self._closing or self._over:
            raise InferenceError(self._why_closed())
        future: Future[T] = Future()
        if self._commands.empty() and not self.busy:
            self.last_step = time.monotonic()  # an idle engine's last step says nothing about how long this one waits
        self._commands.put((future, function))
        if self._over:  # the thread ended meanwhile
            self._refuse_rest()
        return future

    def healthy(self, stuck_after: float = 5.0) -> bool:
        """Whether the engine is making progress or idle. False before the engine exists."""
        if not self._thread.is_alive() or not self.ready.done() or self.ready.exception() is not None:
            return False
        waits = not self._commands.empty() or (self.busy and not self.paused)
        return not waits or time.monotonic() - self.last_step < stuck_after

    def pause(self, engine: Engine, *, abort: bool = False) -> None:
        """Pauses after the current step, in the engine's thread (use `call`). abort: end every request first."""
        if abort:
            engine.abort_all()
        self.paused = True

    def resume(self) -> None:
        """Continues after `pause`."""
        self.paused = False
        if not (self._closing or self._over):
            self.call(lambda engine: None)  # wakes the thread

    def close(self, timeout: float | None = 30.0) -> None:
        """Ends the thread after its current step, abandoning unfinished requests."""
        self._closing = True
        self._commands.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            engine = self._make()
        except BaseException as error:
            self.ready.set_exception(error)
            self._refuse_rest()
            return
        self.path, self.lookahead = engine.path, engine.lookahead
        self.ready.set_result(None)
        try:
            while self._obey(engine):
                self._step(engine)
        finally:
            self._emit(engine.abandon("the engine was shut down"), [])
            engine.close()
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """Fails commands that came too late, so that no caller waits for them."""
        self._over = True
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            if command is not None and command[0].set_running_or_notify_cancel():
                command[0].set_exception(InferenceError(self._why_closed()))

    def _why_closed(self) -> str:
        error = self.ready.exception() if self.ready.done() else None
        return "the engine is shutting down" if error is None else f"the engine could not be made: {error}"

    def _obey(self, engine: Engine) -> bool:
        """Carries out pending commands; sleeps until one arrives while there is nothing else to do."""
        while True:
            self.busy = engine.busy
            sleep = not engine.busy or self.paused
            try:
                command = self._commands.get(block=sleep)
            except queue.Empty:
                return True
            self.last_step = time.monotonic()
            if command is None:
                return False
            future, function = command
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(engine))
            except BaseException as error:
                future.set_exception(error)
            if self.paused:  # no step will come to end aborted requests
                self._emit(engine.settle(), engine.deltas())

    def _step(self, engine: Engine) -> None:
        try:
            completions = engine.step()
            deltas = engine.deltas()
        except Exception as error:  # the engine isolates faults itself; this is for the unforeseen
            logger.exception("an engine step failed; its requests are ended")
            completions, deltas = engine.abandon(f"{type(error).__name__}: {error}"), engine.deltas()
        self.last_step = time.monotonic()
        self.steps += 1
        self._emit(completions, deltas)

    def _emit(self, completions: Iterable[Completion], deltas: Iterable[Delta]) -> None:
        events: list[tuple[int, Event]] = [(delta.request_id, delta) for delta in deltas]
        events += [(completion.request_id, completion) for completion in completions]
        if events:
            try:
                self._sink(events)
            except Exception:
                logger.exception("events of %d requests could not be delivered", len(events))


class AsyncEngine:
    """A `Worker` for one asyncio loop. Use `async with`, or `start` and `close`."""

    def __init__(self, make_engine: Callable[[], Engine], unread: Callable[[Completion], None] | None = None) -> None:
        """`unread` is called with completions of requests that were forgotten before they ended."""
        self.worker = Worker(make_engine, self._from_thread)
        self._unread = unread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[int, asyncio.Queue[Event]] = {}
        self._ended: set[int] = set()  # completed, but not read to the end
        self._starting = 0

    async def start(self) -> None:
        """Creates the engine and waits for it; raises any exception from creating it."""
        self.begin()
        await asyncio.wrap_future(self.worker.ready)

    def begin(self) -> None:
        """Starts creating the engine without waiting for it."""
        self._loop = asyncio.get_running_loop()
        self.worker.start()

    async def close(self) -> None:
        """Ends the engine; running requests end with an error."""
        await asyncio.to_thread(self.worker.close)

    async def __aenter__(self) -> AsyncEngine:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def started(self) -> bool:
        """Whether `start` or `begin` has been called."""
        return self._loop is not None

    @property
    def closing(self) -> bool:
        """Whether `close` has been called: no more requests are accepted."""
        return self.worker._closing

    @property
    def running(self) -> int:
        """Number of unfinished requests."""
        return len(self._listeners) - len(self._ended) + self._starting

    @property
    def held(self) -> int:
        """Number of requests that are unfinished or whose events have not all been read."""
        return len(self._listeners) + self._starting

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Runs a function of the engine in its thread."""
        return await asyncio.wrap_future(self.worker.call(function))

    async def submit(self, requests: list[Request], check: Callable[[Engine], None] | None = None) -> list[int]:
        """Submits requests together, all or none, and returns their ids; read each with `events`.

        Raises ValueError as `Engine.submit` does, and anything raised by `check`, which runs just before.
        """
        pending = asyncio.wrap_future(self.worker.call(lambda engine: self._enter(engine, requests, check)))
        self._starting += len(requests)
        pending.add_done_callback(lambda done: self._refused(done, len(requests)))
        try:
            return await asyncio.shield(pending)
        except asyncio.CancelledError:
            pending.add_done_callback(self._abandon)
            raise

    async def events(self, request_id: int) -> AsyncGenerator[Event, None]:
        """The request's deltas, if it streams, and its completion; can be read once. Leaving early aborts it."""
        inbox = self._listeners[request_id]
        done = False
        try:
            while not done:
                event = await inbox.get()
                done = isinstance(event, Completion)
                yield event
        finally:
            if done:
                self._forget(request_id)
            else:
                self.abort(request_id)

    async def complete(self, request: Request) -> Completion:
        """One request, from its start to its end."""
        [request_id] = await self.submit([request])
        async for event in self.events(request_id):
            if isinstance(event, Completion):
                return event
        raise InferenceError("the request ended without a completion")

    def abort(self, request_id: int) -> None:
        """Forgets a request; if unfinished, it ends at the engine's next step."""
        runs = request_id in self._listeners and request_id not in self._ended
        self._forget(request_id)
        if runs and not self.worker._closing:
            self.worker.call(lambda engine: _abort(engine, request_id))

    def _forget(self, request_id: int) -> None:
        self._listeners.pop(request_id, None)
        self._ended.discard(request_id)

    def _refused(self, pending: asyncio.Future[list[int]], count: int) -> None:
        if pending.cancelled() or pending.exception() is not None:
            self._starting -= count

    def _abandon(self, pending: asyncio.Future[list[int]]) -> None:
        """Aborts requests whose submitter left before their ids arrived."""
        if not pending.cancelled() and pending.exception() is None:
            for request_id in pending.result():
                self.abort(request_id)

    def _enter(self, engine: Engine, requests: list[Request], check: Callable[[Engine], None] | None) -> list[int]:
        """Submits in the engine's thread. The loop learns the ids before any of their events."""
        if check is not None:
            check(engine)
        ids = _submit_all(engine, requests)
        self._tell(self._listen, ids)
        return ids

    def _listen(self, ids: list[int]) -> None:
        self._starting -= len(ids)
        self._listeners.update((request_id, asyncio.Queue()) for request_id in ids)

    def _from_thread(self, events: list[tuple[int, Event]]) -> None:
        self._tell(self._hand_over, events)

    def _tell(self, function: Callable[[T], None], argument: T) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _hand_over(self, events: list[tuple[int, Event]]) -> None:
        for request_id, event in events:
            inbox = self._listeners.get(request_id)
            if inbox is not None:
                inbox.put_nowait(event)
                if isinstance(event, Completion):
                    self._ended.add(request_id)
            elif isinstance(event, Completion) and self._unread is not None:
                self._unread(event)


def _submit_all(engine: Engine, requests: list[Request]) -> list[int]:
    ids: list[int] = []
    try:
        for request in requests:
            ids.append(engine.submit(request))
    except BaseException:
        for request_id in ids:
            engine.abort(request_id)
        raise
    return ids


def _abort(engine: Engine, request_id: int) -> None:
    try:
        engine.abort(request_id)
    except UnknownRequest:
        logger.debug("request %d had ended before it was aborted", request_id)
