"""A client of one server, on httpx2: no redirects, no `.netrc`, bounded answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import httpx2

from inference import network
from inference.address import Address
from inference.client import wire
from inference.client.errors import BadAnswer, RequestRefused, ServerUnavailable
from inference.client.interface import ChatReply, Client, Message, ServerInfo, chat_options
from inference.client.packing import PackedAdapter, check_name, pack
from inference.client.retry import Retry, retry_after
from inference.types import Completion, PublishMode, Request

T = TypeVar("T")
_LATER = (429, 502, 503, 504)
MAX_ANSWER = 64 << 20


class HttpClient(Client):
    """`Client` of a Legos server.

    Args:
        url: such as "http://127.0.0.1:8000"; see `inference.address`.
        api_key: one of the server's keys; never shown in a repr, error or log.
        timeout: seconds for one attempt, from the first byte sent to the last received.
        connect_timeout: seconds of the timeout allowed for connecting.
        retry: how often and how long to try again after a refused or lost connection and after 429, 502, 503, 504.
        max_connections: requests in flight at once; further ones wait here.
        max_answer_bytes: longest answer accepted.
        transport: an httpx2 transport to use instead of the network.

    Every retried call is safe to repeat: completions carry their seed (drawn here if none is given), and publishing
    names its version.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 600.0,
        connect_timeout: float = 5.0,
        retry: Retry | None = None,
        max_connections: int = 256,
        max_answer_bytes: int = MAX_ANSWER,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = str(Address.parse(url, key="api_key"))
        self.timeout, self.retry = timeout, retry or Retry()
        self._max_answer = max_answer_bytes
        self._redact = _redactor(api_key)
        self._numbers = itertools.count()
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=64, keepalive_expiry=10.0)
        self._http = httpx2.AsyncClient(
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            # The time limit for a whole attempt is enforced below; a server may be silent while it generates.
            timeout=httpx2.Timeout(None, connect=connect_timeout),
            transport=transport or network.transport(self.url, limits),
            follow_redirects=False,
            trust_env=False,
        )

    def __repr__(self) -> str:
        return f"HttpClient({self.url!r})"

    async def call(
        self, method: str, path: str, body: wire.Json | None = None, *, plain: bool = False, **parts: Any
    ) -> Any:
        """One attempt at any route: the parsed answer; nothing if `plain`, for answers that need not be JSON.

        Raises:
            InferenceError: `ServerUnavailable`, `RequestRefused` or `BadAnswer`.
        """
        headers, content = self._written(body)
        parts["headers"] = {**headers, **parts.get("headers", {})}
        return await self._send(method, path, plain=plain, content=content, **parts)

    async def complete(self, request: Request) -> Completion:
        """See `Client`. The completion's `request_id` counts this client's requests."""
        body = wire.completion_body(request)
        answer = await self._repeat("POST", "/v1/completions", body, request.session)
        return self._interpret(lambda: wire.read_completion(answer, request, next(self._numbers)))

    async def chat(self, messages: Sequence[Message], *, session: str | None = None, **options: Any) -> ChatReply:
        adapter, choices, params = chat_options(**options)
        body = wire.chat_body(messages, params, adapter, choices)
        answer = await self._repeat("POST", "/v1/chat/completions", body, session)
        return self._interpret(lambda: wire.read_chat(answer, params, adapter))

    async def publish(
        self,
        name: str,
        weights: Mapping[str, Any] | PackedAdapter,
        scale: float,
        version: int,
        mode: PublishMode = "pin",
    ) -> str:
        """See `Client`. A retry first checks whether the last attempt arrived, so that `abort` ends nothing twice."""
        path = f"/v1/adapters/{check_name(name)}"
        packed = pack(weights, scale)
        query = {"scale": repr(packed.scale), "version": str(int(version)), "mode": mode}
        headers = {"X-Content-SHA256": packed.sha256, "Content-Type": "application/octet-stream"}

        async def attempt(number: int) -> str:
            if number:
                answer = await self._send("GET", "/v1/legos/info")
                current = wire.read_info(answer).adapters.get(name)
                if current is not None and (current.version, current.digest) == (version, packed.digest):
                    return current.digest
            answer = await self._send("PUT", path, content=packed.body, headers=headers, params=query)
            digest = answer.get("digest") if isinstance(answer, dict) else None
            if digest != packed.digest:
                raise BadAnswer(f"{self.url} confirms other weights than were sent: {digest!r:.80}")
            return packed.digest

        return await self.retry.run(attempt)

    async def unpublish(self, name: str) -> None:
        path = f"/v1/adapters/{check_name(name)}"

        async def attempt(number: int) -> None:
            try:
                await self._send("DELETE", path)
            except RequestRefused as error:
                if not (number and error.status == 404):  # the previous attempt had arrived
                    raise

        await self.retry.run(attempt)

    async def info(self) -> ServerInfo:
        """See `Client`. Waits, as `retry` allows, while the server loads its model."""
        answer = await self._repeat("GET", "/v1/legos/info")
        return self._interpret(lambda: wire.read_info(answer))

    async def health(self) -> bool:
        try:
            await self._send("GET", "/health")
        except (ServerUnavailable, RequestRefused, BadAnswer):
            return False
        return True

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _repeat(self, method: str, path: str, body: wire.Json | None = None, session: str | None = None) -> Any:
        headers, content = self._written(body)
        if session is not None:
            headers["X-Session-ID"] = session
        return await self.retry.run(lambda number: self._send(method, path, content=content, headers=headers))

    @staticmethod
    def _written(body: wire.Json | None) -> tuple[dict[str, str], bytes | None]:
        """A body's headers and its bytes."""
        if body is None:
            return {}, None
        try:
            content = json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefused(400, f"the request cannot be written as JSON: {error}"[:300]) from None
        return {"Content-Type": "application/json"}, content

    async def _send(self, method: str, path: str, *, plain: bool = False, **parts: Any) -> Any:
        """One attempt: the parsed answer, or one of our errors."""
        try:
            async with asyncio.timeout(self.timeout), self._http.stream(method, self.url + path, **parts) as response:
                body = await self._body(response)
                return None if plain and response.status_code == 200 else self._read(response, body)
        except (TimeoutError, httpx2.TimeoutException) as error:
            late = not isinstance(error, httpx2.ConnectTimeout)
            what = f"did not answer within {self.timeout:g} seconds" if late else "cannot be connected to in time"
            raise ServerUnavailable(f"{self.url} {what}", timed_out=late) from None
        except httpx2.DecodingError as error:
            self._bad(f"sent a body that cannot be decoded: {error}")
        except httpx2.TransportError as error:
            why = self._redact(f"{type(error).__name__}: {error}".removesuffix(": "))
            raise ServerUnavailable(f"{self.url} cannot be reached ({why})") from None

    async def _body(self, response: httpx2.Response) -> bytes:
        parts, size = [], 0
        async for part in response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > self._max_answer:
                self._bad(f"sent more than {self._max_answer} bytes")
        return b"".join(parts)

    def _read(self, response: httpx2.Response, body: bytes) -> Any:
        answer = None
        with contextlib.suppress(ValueError, RecursionError):  # an error page need not be JSON
            answer = json.loads(body, parse_constant=_no_constant)
        status = response.status_code
        if status == 200:
            if answer is None:
                self._bad(f"answered with something other than JSON: {body[:60]!r}")
            return answer
        text = self._redact(wire.error_text(answer)) or response.reason_phrase or "no reason given"
        if status in _LATER:
            wait = retry_after(response.headers.get("Retry-After"))
            raise ServerUnavailable(f"{self.url}: {text} ({status})", status=status, retry_after=wait)
        if 300 <= status < 400:
            text = f"redirects are not followed: {text}"
        raise RequestRefused(status, f"{self.url}: {text}")

    def _interpret(self, read: Callable[[], T]) -> T:
        """The answer as `read` understands it; BadAnswer names the server."""
        try:
            return read()
        except BadAnswer as error:
            self._bad(str(error))

    def _bad(self, what: str) -> NoReturn:
        raise BadAnswer(self._redact(f"{self.url}: {what}")) from None


def _redactor(key: str | None) -> Callable[[str], str]:
    """Removes the key from texts; holding it in a closure keeps it out of `vars` and debuggers' views."""
    if key is None:
        return lambda text: text
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]+", key):
        raise ValueError("api_key must be a text of visible ASCII characters, without spaces or line ends")
    return lambda text: text.replace(key, "***")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
