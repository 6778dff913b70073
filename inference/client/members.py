"""Who belongs to a pool, who of them can be used, and what all of them should have.

An endpoint is used when it has said that it serves the model of the others and has every adapter it should have. One
that failed is asked again after a while, and gets what it lacks first: it may have been restarted.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from inference.client.errors import Incompatible, RequestRefused, ServerUnavailable
from inference.client.http import HttpClient
from inference.client.interface import Client, ServerInfo, differences
from inference.client.publications import Publications
from inference.client.retry import Retry
from inference.types import InferenceError

_order = itertools.count(1)
logger = logging.getLogger(__name__)


class Endpoint:
    """One client of a pool: how busy it is, whether it can be used, and when it is asked again.

    It is not usable until it has said what it serves.

    Attributes:
        epoch: grows whenever it becomes usable; a failure of a request from an earlier epoch says nothing now.
    """

    def __init__(self, client: Client, number: int, retry: Retry) -> None:
        # The pool repeats elsewhere, so a client must not insist.
        self.client: Client = client.once() if isinstance(client, HttpClient) else client
        self.name: str = getattr(client, "url", None) or f"client {number} ({client!r})"
        self._retry = retry
        self.usable = False
        self.epoch = self.outstanding = self.served = self.order = 0
        self.error: str | None = None
        self.revival: asyncio.Future[None] | None = None
        self._failures = 0
        self._ask_at = 0.0

    @property
    def due(self) -> bool:
        """Left out long enough to be asked again."""
        return not self.usable and self.revival is None and time.monotonic() >= self._ask_at

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a request is with this endpoint."""
        self.outstanding += 1
        self.order = next(_order)
        try:
            yield
            self.served += 1
        finally:
            self.outstanding -= 1

    def leave_out(self, epoch: int, error: BaseException) -> None:
        """A request of that epoch has failed: no more for now."""
        if self.usable and epoch == self.epoch:
            self.usable = False
            self.failed_again(error)

    def failed_again(self, error: BaseException) -> None:
        """It is still unusable; the longer that lasts, the less often it is asked."""
        self._failures += 1
        self._ask_at = time.monotonic() + self._retry.wait(self._failures)
        if str(error) != self.error:
            logger.warning("%s is left out: %s", self.name, error)
        self.error = str(error)

    def take_in(self) -> None:
        """Use it (again)."""
        self.usable, self.error, self._failures = True, None, 0
        self.epoch += 1


class Members:
    """The endpoints of a pool.

    Attributes:
        published: the adapters that all of them should have.
        identity: the model they serve, once known.
        changing: held by who changes `published`.
    """

    def __init__(self, clients: Sequence[Client], retry: Retry) -> None:
        self.endpoints = [Endpoint(client, number, retry) for number, client in enumerate(clients)]
        self.retry = retry
        self.published = Publications()
        self.identity: ServerInfo | None = None
        self.changing = asyncio.Lock()
        self._starting = asyncio.Lock()

    @property
    def usable(self) -> list[Endpoint]:
        """Those that may be asked."""
        return [endpoint for endpoint in self.endpoints if endpoint.usable]

    def nobody(self) -> str:
        """Why no endpoint can be asked."""
        return "no endpoint is usable: " + "; ".join(f"{e.name}: {e.error or 'busy'}" for e in self.endpoints)

    async def start(self) -> None:
        """Learn once what is served. Incompatible when endpoints differ, ServerUnavailable when none answers."""
        if self.identity is not None:
            return
        async with self._starting:
            if self.identity is None:
                infos = await self.retry.run(lambda number: self.agree())
                self.identity = next(iter(infos.values()))
                for endpoint in infos:
                    endpoint.take_in()

    async def agree(self) -> dict[Endpoint, ServerInfo]:
        """What every endpoint that answers says it serves; the model that most of them have comes first."""
        epochs = [(e, e.epoch) for e in self.endpoints]
        results = await asyncio.gather(*(e.client.info() for e, _ in epochs), return_exceptions=True)
        infos: dict[Endpoint, ServerInfo] = {}
        for (endpoint, epoch), result in zip(epochs, results):
            if isinstance(result, ServerInfo):
                infos[endpoint] = result
            elif isinstance(result, ServerUnavailable):
                endpoint.leave_out(epoch, result)
                endpoint.error = str(result)
            else:
                raise result
        if not infos:
            raise ServerUnavailable(self.nobody())
        model = max(infos, key=lambda e: sum(not differences(infos[e], other) for other in infos.values()))
        wrong = {e: differences(infos[model], info) for e, info in infos.items()}
        if any(wrong.values()):
            reasons = [
                f"{e.name} differs from {model.name} in {' and '.join(what)}" for e, what in wrong.items() if what
            ]
            raise Incompatible(f"{'; '.join(reasons)}. All endpoints of a pool serve one model")
        return infos

    def revive(self, endpoint: Endpoint) -> asyncio.Future[None]:
        """Start to bring an endpoint back, unless that is under way."""
        if endpoint.revival is None:
            endpoint.revival = asyncio.ensure_future(self._bring_back(endpoint))

            def over(done: asyncio.Future[None]) -> None:
                endpoint.revival = None
                if not done.cancelled() and (bug := done.exception()) is not None:
                    endpoint.failed_again(bug)
                    logger.error("%s could not be brought back", endpoint.name, exc_info=bug)

            endpoint.revival.add_done_callback(over)
        return endpoint.revival

    async def revive_all(self, endpoints: Iterable[Endpoint]) -> None:
        """Bring back those that are not usable, and wait until that has been tried."""
        pending = [self.revive(e) for e in endpoints if not e.usable]
        if pending:
            await asyncio.wait(pending)  # which does not cancel them when one waiting request is cancelled

    async def _bring_back(self, endpoint: Endpoint) -> None:
        """Use an endpoint again when it answers, has the model, and all adapters it should have."""
        try:
            while True:
                serial = self.published.serial
                info = await endpoint.client.info()
                wrong = differences(self.identity, info) if self.identity is not None else []
                if wrong:
                    raise Incompatible(f"{endpoint.name} differs from the others in {' and '.join(wrong)}")
                await self._catch_up(endpoint, info)
                if serial == self.published.serial:  # nothing was published meanwhile
                    break
        except InferenceError as error:
            endpoint.failed_again(error)
            return
        endpoint.take_in()
        logger.info("%s is used", endpoint.name)

    async def _catch_up(self, endpoint: Endpoint, info: ServerInfo) -> None:
        """Publish what it lacks, take away what was taken away elsewhere."""
        for name, publication in self.published.items():
            there = info.adapters.get(name)
            if there is None or (there.version, there.digest) != (publication.version, publication.packed.digest):
                await endpoint.client.publish(name, publication.packed, publication.packed.scale, publication.version)
        for name in self.published.dropped & info.adapters.keys():
            await endpoint.client.unpublish(name)

    def forget_dropped(self) -> None:
        """Where all endpoints are in use, none has what was taken away: it need not be remembered.

        For who holds `changing`: amid a change an endpoint in use may have yet to hear of it.
        """
        assert self.changing.locked()
        if len(self.usable) == len(self.endpoints):
            self.published.forget_dropped()

    async def everywhere(self, change: Callable[[Client], Awaitable[object]]) -> list[RequestRefused]:
        """Make a change at every usable endpoint; at least one has taken it, and who has not is left out.

        Returns the refusals. Raises RequestRefused when no endpoint took it, ServerUnavailable when none answered.
        """

        async def attempt(number: int) -> list[RequestRefused]:
            if number or not self.usable:
                await self.revive_all(self.endpoints)  # which includes the change
                if self.usable:
                    return []
                raise ServerUnavailable(self.nobody())
            epochs = [(e, e.epoch) for e in self.usable]
            results = await asyncio.gather(*(change(e.client) for e, _ in epochs), return_exceptions=True)
            faults = [result for result in results if isinstance(result, BaseException)]
            for fault in faults:
                if not isinstance(fault, InferenceError):
                    raise fault
            refusals = [fault for fault in faults if isinstance(fault, RequestRefused)]
            nobody = len(faults) == len(epochs)
            for (endpoint, epoch), result in zip(epochs, results):
                # When no endpoint took it, those that refused have what they should have.
                if isinstance(result, BaseException) and not (nobody and isinstance(result, RequestRefused)):
                    endpoint.leave_out(epoch, result)
            if nobody:
                raise refusals[0] if refusals else ServerUnavailable(self.nobody())
            return refusals

        return await self.retry.run(attempt)
