"""Several endpoints as one client: who is asked, and what a failed answer means.

A publication either reaches an endpoint or takes it out of use until it has caught up, so every answer comes from the
version that is current here, and an answer that does not gives a restarted server away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from inference.client.errors import BadAnswer, RequestRefused, ServerUnavailable
from inference.client.interface import ChatReply, Client, Message, ServerInfo, chat_options
from inference.client.members import Endpoint, Members
from inference.client.packing import PackedAdapter, check_name, pack
from inference.client.publications import Mark, Publication
from inference.client.retry import Retry
from inference.types import Completion, InferenceError, PublishMode, Request

T = TypeVar("T")
_SESSIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One endpoint as the pool sees it. served: requests answered; outstanding: not answered yet."""

    name: str
    usable: bool
    outstanding: int
    served: int
    error: str | None


class Pool(Client):
    """`Client` of several clients that serve the same model. It closes them.

    A request goes to the endpoint with the fewest outstanding ones, a `session` to the one that answered it last. When
    an endpoint fails, its requests go to another; it is asked again after a while, and used again when it has the same
    model and all adapters published here.

    retry: how often a request is tried, and how long to wait when no endpoint can take it; its waits are also those
    before an endpoint that failed is asked again.
    """

    def __init__(self, clients: Sequence[Client], *, retry: Retry | None = None) -> None:
        if not clients:
            raise ValueError("a pool needs at least one client")
        self.retry = retry or Retry()
        self._members = Members(clients, self.retry)
        self._published = self._members.published
        self._sessions: OrderedDict[str, Endpoint] = OrderedDict()

    def __repr__(self) -> str:
        return f"Pool([{', '.join(endpoint.name for endpoint in self._members.endpoints)}])"

    def status(self) -> list[EndpointStatus]:
        """Every endpoint, in the order given."""
        return [EndpointStatus(e.name, e.usable, e.outstanding, e.served, e.error) for e in self._members.endpoints]

    # --- requests ----------------------------------------------------------------------------------------------------

    async def complete(self, request: Request, *, session: str | None = None) -> Completion:
        return await self._ask(lambda client: client.complete(request), request.adapter, session)

    async def chat(self, messages: Sequence[Message], *, session: str | None = None, **options: Any) -> ChatReply:
        adapter, *_ = chat_options(**options)
        return await self._ask(lambda client: client.chat(messages, **options), adapter, session)

    async def _ask(self, call: Callable[[Client], Awaitable[T]], adapter: str | None, session: str | None) -> T:
        """The first good answer. Every endpoint is tried before any is tried again."""
        await self._members.start()
        since = self._published.mark(adapter)

        async def attempt(number: int) -> T:
            tried: set[Endpoint] = set()
            fault: InferenceError = ServerUnavailable(self._members.nobody())
            while (endpoint := await self._choose(session, tried)) is not None:
                tried.add(endpoint)
                epoch = endpoint.epoch
                try:
                    with endpoint.busy():
                        answer = await call(endpoint.client)
                        self._check_version(adapter, answer, since)
                except ServerUnavailable as error:
                    fault = error
                    if error.status != 429:
                        endpoint.leave_out(epoch, error)
                except BadAnswer as error:
                    fault = error
                    endpoint.leave_out(epoch, error)
                except RequestRefused as error:
                    if error.status == 404 and adapter in self._published:  # restarted unnoticed
                        endpoint.leave_out(epoch, error)
                    elif error.status < 500:
                        raise
                    fault = error
                else:
                    if session is not None:
                        self._remember(session, endpoint)
                    return answer
            if isinstance(fault, ServerUnavailable) or number:
                raise fault
            # Each endpoint failed on this request: once more after a pause, then it is the request's fault.
            raise ServerUnavailable(str(fault)) from fault

        return await self.retry.run(attempt)

    def _check_version(self, adapter: str | None, answer: Any, since: Mark | None) -> None:
        if not self._published.plausible(since, answer.policy_version, answer.adapter_digest):
            weights = str(answer.adapter_digest)[:12]
            raise BadAnswer(
                f"version {answer.policy_version} of {adapter!r}, weights {weights}, answered, which is not what was "
                "published here"
            )

    async def _choose(self, session: str | None, tried: set[Endpoint]) -> Endpoint | None:
        """Who is asked next: the session's endpoint, else the least busy one. None when all were tried."""
        members = self._members
        for endpoint in members.endpoints:
            if endpoint.due:
                members.revive(endpoint)
        if not members.usable:
            # Nobody is left. A request must not fail while there is a server that could answer it: ask them now.
            await members.revive_all(e for e in members.endpoints if e not in tried)
        usable = [e for e in members.usable if e not in tried]
        if not usable:
            return None
        home = self._sessions.get(session) if session is not None else None
        return home if home in usable else min(usable, key=lambda e: (e.outstanding, e.order))

    def _remember(self, session: str, endpoint: Endpoint) -> None:
        self._sessions[session] = endpoint
        self._sessions.move_to_end(session)
        while len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)

    # --- adapters ----------------------------------------------------------------------------------------------------

    async def publish(
        self,
        name: str,
        weights: Mapping[str, Any] | PackedAdapter,
        scale: float,
        version: int,
        mode: PublishMode = "pin",
    ) -> str:
        """See `Client`. Returns when every endpoint has the version or is left out until it has (see `status`).

        Raises RequestRefused when an endpoint that others agree with refuses it, naming which; ServerUnavailable when
        none could be reached. When none has taken it, the version before stays the one that is published here.
        """
        check_name(name)
        new = Publication(pack(weights, scale), version)
        await self._members.start()
        async with self._members.changing:
            undo = self._published.put(name, new)
            try:
                refusals = await self._members.everywhere(
                    lambda client: client.publish(name, new.packed, scale, version, mode)
                )
            except BaseException:
                undo()
                raise
            self._published.settle(name)
            self._members.forget_dropped()
        if refusals:
            raise RequestRefused(refusals[0].status, f"not all endpoints took {name!r}: {_joined(refusals)}")
        return new.packed.digest

    async def unpublish(self, name: str) -> None:
        check_name(name)
        await self._members.start()
        async with self._members.changing:
            existed = name in self._published

            async def remove(client: Client) -> None:
                nonlocal existed
                try:
                    await client.unpublish(name)
                    existed = True
                except RequestRefused as error:
                    if error.status != 404:
                        raise

            self._published.drop(name)  # and if nobody can be reached: who comes back lets go of it then
            refusals = await self._members.everywhere(remove)
            self._members.forget_dropped()
        if refusals:
            raise RequestRefused(refusals[0].status, f"not all endpoints let go of {name!r}: {_joined(refusals)}")
        if not existed:
            raise RequestRefused(404, f"no adapter {name!r} is published")

    async def expect(self, name: str, weights: Mapping[str, Any] | PackedAdapter, scale: float, version: int) -> str:
        """As `publish`, for what another client publishes: answers under the name must come from these weights."""
        new = Publication(pack(weights, scale), version)
        async with self._members.changing:
            self._published.put(check_name(name), new)
            self._published.settle(name)
        return new.packed.digest

    async def forget(self, name: str) -> None:
        """As `unpublish`, for what another client takes away."""
        async with self._members.changing:
            self._published.drop(name)
            self._members.forget_dropped()

    async def clear(self, prefix: str) -> None:
        """Take away every adapter whose name begins so, at every endpoint that answers; where that fails they stay."""

        async def empty(client: Client) -> None:
            with contextlib.suppress(ServerUnavailable, BadAnswer):
                for name in (await client.info()).adapters:
                    if name.startswith(prefix):
                        with contextlib.suppress(RequestRefused):
                            await client.unpublish(name)

        async with self._members.changing:
            for name in [name for name, _ in self._published.items() if name.startswith(prefix)]:
                self._published.drop(name)
            await asyncio.gather(*(empty(endpoint.client) for endpoint in self._members.endpoints))

    async def info(self) -> ServerInfo:
        """What is served. Incompatible names the endpoint whose model differs, and in what."""
        await self._members.start()
        infos = [*(await self.retry.run(lambda number: self._members.agree())).values()]
        limits = [info.max_adapters for info in infos if info.max_adapters is not None]
        return replace(infos[0], max_adapters=min(limits, default=None))

    async def health(self) -> bool:
        """Some endpoint is healthy."""
        return any(await asyncio.gather(*(e.client.health() for e in self._members.endpoints)))

    async def close(self) -> None:
        """Close every client; the first error is raised when all have been tried."""
        revivals = [e.revival for e in self._members.endpoints if e.revival is not None]
        for revival in revivals:
            revival.cancel()
        await asyncio.gather(*revivals, return_exceptions=True)
        closed = await asyncio.gather(*(e.client.close() for e in self._members.endpoints), return_exceptions=True)
        for fault in closed:
            if fault is not None:
                raise fault

    async def __aenter__(self) -> Self:
        entered = []
        try:
            for endpoint in self._members.endpoints:
                await endpoint.client.__aenter__()
                entered.append(endpoint)
            await self._members.start()
        except BaseException:
            await asyncio.gather(*(e.client.close() for e in entered))
            raise
        return self


def _joined(refusals: Sequence[RequestRefused]) -> str:
    return "; ".join(str(refusal) for refusal in refusals)
