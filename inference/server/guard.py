"""Access control and size limits: a plain ASGI layer in front of the routes, so that no route can forget it.

It refuses foreign `Host` headers (a browser page that resolves a name to this machine), foreign `Origin`, missing keys,
bodies that are too long, too slow or not declared as JSON, and headers that are too long. Bodies are read whole before
a route sees them; their bytes count as held until the route has answered.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from inference.server.protocol import error_body
from inference.server.settings import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PUBLIC = frozenset({"/health", "/ready"})
"""Routes answered without a key; they only report a status."""
LONG = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"})
"""Routes whose bodies contain texts."""
SHORT_BODY = 16 << 10


class Guard:
    """Wraps an ASGI application.

    Args:
        app: the application.
        hosts: names accepted in `Host`, ignoring ports.
        keys: any of them opens every route; if empty, no key is needed.
        limits: on sizes and times.
    """

    def __init__(self, app: Any, hosts: Collection[str], keys: Collection[str], limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.hosts = {host.casefold() for host in hosts}
        self.keys = [key.encode() for key in keys]
        self._held = {False: 0, True: 0}  # bytes of bodies of unanswered requests; True: of adapters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refuse(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        if scope["method"] not in ("POST", "PUT"):
            await self.app(scope, receive, send)
            return
        adapter, limit = self._is_adapter(scope), self._limit(scope)
        # A large adapter may take longer than a prompt, but not forever.
        seconds = self.limits.body_seconds * (6 if adapter else 1)
        body = bytearray()
        try:
            try:
                refusal = await asyncio.wait_for(self._read(receive, body, limit, adapter), seconds)
            except TimeoutError:
                refusal = 408, f"the body did not arrive within {seconds:g} seconds"
            except _Gone:
                return
            if refusal is not None:
                await _answer(send, *refusal)
            else:
                await self.app(scope, _replay(body, receive), send)
        finally:
            self._held[adapter] -= len(body)

    async def _read(self, receive: Receive, body: bytearray, limit: int, adapter: bool) -> tuple[int, str] | None:
        """Reads the whole body into `body`; the refusal, or None. `_Gone` when the client leaves."""
        most = self.limits.adapter_body if adapter else self.limits.bodies
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            if len(body) + len(part) > limit:
                return 413, f"the body is longer than {limit} bytes"
            if self._held[adapter] + len(part) > most:
                return 503, f"waiting and running requests hold {most} bytes; try again later"
            body += part
            self._held[adapter] += len(part)
            if not message.get("more_body", False):
                return None

    @staticmethod
    def _is_adapter(scope: Scope) -> bool:
        return scope["method"] == "PUT" and str(scope["path"]).startswith("/v1/adapters/")

    def _limit(self, scope: Scope) -> int:
        """Most bytes of the body."""
        if self._is_adapter(scope):
            return self.limits.adapter_body
        return self.limits.body if scope["path"] in LONG else min(SHORT_BODY, self.limits.body)

    def _refuse(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"host" and name in headers:
                return 400, "more than one Host header"
            headers[name] = value
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self.limits.head:
            return 431, f"the headers are longer than {self.limits.head} bytes"
        if _host(headers.get(b"host", b"")) not in self.hosts:
            return 400, "this Host is not served; see --allowed-host"
        origin = headers.get(b"origin")
        if origin is not None and not _same_origin(origin, headers.get(b"host", b"")):
            return 403, "requests of other origins are refused"
        if self.keys and scope["path"] not in PUBLIC and not self._authorized(headers.get(b"authorization", b"")):
            return 401, "an API key is needed: Authorization: Bearer KEY"
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return 400, "give either Content-Length or Transfer-Encoding: two servers may read them differently"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limit(scope):
            return 413, f"the body is longer than {self._limit(scope)} bytes"
        if scope["method"] == "POST" and headers.get(b"content-length", b"") != b"0":
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            has_body = b"content-length" in headers or b"transfer-encoding" in headers
            if has_body and kind != b"application/json":
                return 415, "the body must be JSON: Content-Type: application/json"
        return None

    def _authorized(self, authorization: bytes) -> bool:
        scheme, _, token = authorization.partition(b" ")
        # Compare every key, even after a match.
        matches = [hmac.compare_digest(token.strip(), key) for key in self.keys]
        return scheme.lower() == b"bearer" and any(matches)


def _host(value: bytes) -> str:
    """The name in a Host header, without its port; "" when it is not a host."""
    text = value.decode("latin-1").casefold()
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        _, _, port = rest.partition(":")
        return name if rest in ("", f":{port}") and (not port or port.isdigit()) else ""
    name, _, port = text.partition(":")
    return name if not port or port.isdigit() else ""


def _same_origin(origin: bytes, host: bytes) -> bool:
    """Whether a page of this origin was served under the request's own host and port, here or by a TLS proxy."""
    text, own = origin.decode("latin-1").casefold(), host.decode("latin-1").casefold()
    scheme, _, authority = text.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    return port is not None and authority.removesuffix(port) == own.removesuffix(port)


class _Gone(Exception):
    """The client has left."""


def _replay(body: bytearray, receive: Receive) -> Receive:
    """A `receive` that returns the body at once, then the events of the connection."""
    sent = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


async def _answer(send: Send, status: int, message: str) -> None:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    body = json.dumps(error_body(message, kind, status)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    headers.append((b"connection", b"close"))  # do not read the rest of a refused request
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
