"""Several servers as one generator: assigns requests to servers, and reassigns them when a server fails.

A request waits here until a server has room for it, shares a call with others of its kind, and is answered exactly
once: by its server; by another one if the first is lost, slow, full or wrong; or by an error if no server has been
usable for a long time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inference.client import completions
from inference.client.endpoint import MISSES, Endpoint, choose
from inference.client.errors import BadAnswer, RequestRefused, ServerUnavailable
from inference.client.http import HttpClient
from inference.client.pending import FAULTS, REFUSED, Pending
from inference.client.publications import Publications
from inference.client.retry import Retry
from inference.client.shelf import Shelf
from inference.types import Completion, InferenceError, Request

logger = logging.getLogger(__name__)


class Fleet:
    """Servers of one model. All methods must be called in the event loop that created it, `adapters.prepare` apart.

    Args:
        urls: http://HOST:PORT of `legos serve` or vLLM (detected), or vllm://HOST:PORT.
        deliver: receives each request's number with its completion or error, exactly once; never for cancelled
            requests.
        api_key: for all servers.
        shelf: a folder that the servers see under the same path and load adapters from; None: adapters are uploaded.
        timeout: seconds per call.
        patience: seconds that a request may keep failing or find no server.
        retry: determines the waits before a failed server is tried again.
        sessions: number of session ids (header `X-Session-ID`) to spread conversations over, for a router in front of
            many servers; 1: none is sent, and a call may mix turns of any conversations.
        vocab: the tokens of the model; an answer with others is an error. None: not known.
    """

    def __init__(
        self,
        urls: Sequence[str],
        deliver: Callable[[int, Completion | InferenceError], None],
        *,
        api_key: str | None = None,
        shelf: Path | None = None,
        timeout: float = 600.0,
        patience: float = 60.0,
        retry: Retry | None = None,
        sessions: int = 1,
        vocab: int | None = None,
    ) -> None:
        if not urls:
            raise ValueError("a fleet needs the address of at least one server")
        place = None if shelf is None else Shelf(shelf)
        self.endpoints = [_endpoint(url, api_key, timeout, vocab, place) for url in urls]
        self.adapters = Publications(self.endpoints, place, self._task)
        self.patience, self.sessions = patience, sessions
        self._deliver = deliver
        self.retry = retry or Retry(attempts=10_000, budget=patience)
        self._waiting: deque[Pending] = deque()
        self._open: dict[int, Pending] = {}
        self._calls: dict[asyncio.Task[None], list[Pending]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- servers -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Finds out what all servers serve, waiting for any that are still loading.

        Raises:
            InferenceError: one of them does not answer or is not usable.
        """

        async def attempt(endpoint: Endpoint, number: int) -> None:
            try:
                await endpoint.identify()
            except ServerUnavailable as error:
                if not number:
                    logger.warning("waiting for up to %.0f s: %s", self.retry.budget, error)
                raise

        async def begin(endpoint: Endpoint) -> None:
            await self.retry.run(partial(attempt, endpoint))
            endpoint.usable = True

        await asyncio.gather(*(begin(endpoint) for endpoint in self.endpoints))

    def nobody(self) -> str:
        """The reason why no server can be used."""
        return "no server is usable: " + "; ".join(f"{e.url}: {e.error or 'not asked yet'}" for e in self.endpoints)

    def _leave_out(self, endpoint: Endpoint, error: BaseException, wait: float | None = None) -> None:
        """Stops requests to a server until it identifies itself again; checks after `wait`, or with growing delays."""
        if not endpoint.usable:
            return
        endpoint.usable = False
        endpoint.failures += 1
        if str(error) != endpoint.error:
            logger.warning("%s is left out: %s", endpoint.url, error)
        endpoint.error = str(error)
        endpoint.reviving = self._task(self._revive(endpoint, wait))

    async def _revive(self, endpoint: Endpoint, wait: float | None) -> None:
        full = wait is not None
        while True:
            await asyncio.sleep(self.retry.wait(endpoint.failures) if wait is None else wait)
            wait = None
            try:
                if not full:
                    await endpoint.identify()
                break
            except InferenceError as error:
                endpoint.failures += 1
                endpoint.error = str(error)
                self._expire()
        endpoint.usable = True
        self._drain()

    def _expire(self) -> None:
        """Gives up on requests that waited too long without a usable server."""
        if any(endpoint.usable for endpoint in self.endpoints):
            return
        now = time.monotonic()
        for ticket in [t for t in self._waiting if t.since is not None and now - t.since > self.patience]:
            self._waiting.remove(ticket)
            self._finish(ticket, ServerUnavailable(self.nobody()))

    # --- requests ----------------------------------------------------------------------------------------------------

    def submit(self, requests: Iterable[tuple[int, Request, str | None]]) -> None:
        """Submits requests: number, request, name of a published adapter. `deliver` gets the outcome of each."""
        for number, request, name in requests:
            publication = self.adapters.base if name is None else self.adapters[name]
            ticket = Pending(number, request, publication)
            self._open[number] = ticket
            if publication is not None:
                publication.outstanding += 1
            self._waiting.append(ticket)
        self._drain()

    def cancel(self, number: int) -> None:
        """Forgets a request. A call that nobody waits for any more is cancelled, which ends it on the server."""
        ticket = self._open.get(number)
        if ticket is None:
            return
        ticket.cancelled = True
        self._close(ticket)
        for task, tickets in self._calls.items():
            if ticket in tickets and all(one.cancelled for one in tickets):
                task.cancel()

    def _drain(self) -> None:
        """Assigns waiting requests to servers with room, grouping those of a kind."""
        groups: dict[tuple[object, ...], list[Pending]] = {}
        rest: deque[Pending] = deque()
        now = time.monotonic()
        while self._waiting:
            ticket = self._waiting.popleft()
            if ticket.cancelled:
                continue
            endpoint = choose(self.endpoints, ticket.request.session, ticket.last)
            if endpoint is None:
                if ticket.since is None and not any(one.usable for one in self.endpoints):
                    ticket.since = now
                rest.append(ticket)
                if not any(one.room > 0 for one in self.endpoints):
                    break
                continue
            try:
                kind = completions.group_key(ticket.request.sampling)
            except RequestRefused as error:
                self._finish(ticket, error)
                continue
            alone = ticket.number if ticket.faults or ticket.alone else -1
            group = (endpoint, self._lane(ticket), ticket.publication and ticket.publication.name, kind, alone)
            groups.setdefault(group, []).append(ticket)
            endpoint.outstanding += 1
        rest.extend(self._waiting)
        self._waiting = rest
        for (server, session, *_), tickets in groups.items():
            sizes = completions.calls([ticket.request for ticket in tickets], server.most)  # type: ignore[attr-defined]
            left = iter(tickets)
            for size in sizes:
                part = list(itertools.islice(left, size))
                task = asyncio.ensure_future(self._call(server, part, session))  # type: ignore[arg-type]
                self._calls[task] = part
                task.add_done_callback(partial(self._called, server, len(part)))  # type: ignore[arg-type]

    def _called(self, endpoint: Endpoint, count: int, task: asyncio.Task[None]) -> None:
        """After a call, also one that was cancelled before it began."""
        self._calls.pop(task, None)
        endpoint.outstanding -= count
        self._drain()

    def _lane(self, ticket: Pending) -> str | None:
        """The session id sent for a conversation."""
        session = ticket.request.session
        if session is None or self.sessions <= 1:
            return None
        return f"legos-{zlib.crc32(session.encode()) % self.sessions}"

    async def _call(self, endpoint: Endpoint, tickets: list[Pending], session: str | None) -> None:
        began = time.monotonic()
        try:
            answers = await endpoint.complete([t.request for t in tickets], tickets[0].publication, session)
        except InferenceError as error:
            self._failed(endpoint, tickets, error)
        except Exception as error:  # nobody awaits this task: the requests must learn of it
            if self._apart(tickets):
                return
            logger.exception("a call to %s failed", endpoint.url)
            for ticket in tickets:
                self._finish(ticket, InferenceError(f"{endpoint.url}: {type(error).__name__}: {error}"))
        else:
            endpoint.took(time.monotonic() - began, max(len(answer.tokens) for answer in answers))
            for ticket, answer in zip(tickets, answers, strict=True):
                self._finish(ticket, answer)

    def _apart(self, tickets: Sequence[Pending]) -> bool:
        """Lets the requests of a refused call travel alone, since one of them may be to blame; False if it was one."""
        if len(tickets) < 2:
            return False
        for ticket in tickets:
            ticket.alone = True
            if not ticket.cancelled:
                self._waiting.appendleft(ticket)
        return True

    def _failed(self, endpoint: Endpoint, tickets: Sequence[Pending], error: InferenceError) -> None:
        """Handles an error: its consequences for the server and for its requests."""
        status = getattr(error, "status", None)
        final = False
        if isinstance(error, ServerUnavailable) and status == 429:
            endpoint.window = max(1, (endpoint.outstanding - len(tickets)) or endpoint.window // 2)
            self._leave_out(endpoint, error, error.retry_after or self.retry.wait(1))
        elif isinstance(error, ServerUnavailable | BadAnswer):
            self._leave_out(endpoint, error)
        elif isinstance(error, RequestRefused) and status == 404 and tickets[0].publication is not None:
            endpoint.misses += 1  # it was started again, let go of the adapter, or had only that one by itself
            endpoint.way = None
            final = endpoint.misses > MISSES
            self._leave_out(endpoint, error)
        elif isinstance(error, RequestRefused) and error.status >= 500:
            for ticket in tickets:
                ticket.faults += 1
            final = max(ticket.faults for ticket in tickets) >= FAULTS
            self._leave_out(endpoint, error)
        elif isinstance(error, RequestRefused) and status in REFUSED and self._apart(tickets):
            return
        else:
            final = True
        now = time.monotonic()
        for ticket in tickets:
            ticket.since = now if ticket.since is None else ticket.since
            ticket.last = endpoint
            if final:
                self._finish(ticket, error)
            elif now - ticket.since > self.patience:
                self._finish(ticket, ServerUnavailable(f"{self.nobody()}" if not endpoint.usable else str(error)))
            elif not ticket.cancelled:
                self._waiting.appendleft(ticket)

    def _finish(self, ticket: Pending, answer: Completion | InferenceError) -> None:
        if not ticket.cancelled and self._open.get(ticket.number) is ticket:
            self._close(ticket)
            self._deliver(ticket.number, answer)

    def _close(self, ticket: Pending) -> None:
        if self._open.pop(ticket.number, None) is not None and ticket.publication is not None:
            self.adapters.release(ticket.publication)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self, seconds: float = 0.0) -> None:
        """Cancels everything that runs.

        Args:
            seconds: time that adapters in transit get to arrive. A cancelled one may still arrive later, and stay.
        """
        self._waiting.clear()
        for endpoint in self.endpoints:
            endpoint.usable = False
        bringing = [task for endpoint in self.endpoints for task in endpoint.bringing]
        sending = [task for endpoint in self.endpoints if (task := endpoint.sending) in bringing]
        tasks = [*self._tasks, *self._calls, *bringing]
        for task in tasks:
            if task not in sending:
                task.cancel()
        if sending:
            await asyncio.wait(sending, timeout=seconds)
        for task in sending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancels all running calls and closes the connections."""
        await self.stop()
        closed = await asyncio.gather(*(e.client.close() for e in self.endpoints), return_exceptions=True)
        for fault in closed:
            if fault is not None:
                raise fault


def _endpoint(url: str, key: str | None, timeout: float, vocab: int | None, shelf: Shelf | None) -> Endpoint:
    scheme, _, rest = url.partition("://")
    plain = f"http://{rest}" if scheme == "vllm" else url
    client = HttpClient(plain, key, timeout=timeout, retry=Retry(attempts=1))
    return Endpoint(client, shelf, "vllm" if scheme == "vllm" else None, vocab)
