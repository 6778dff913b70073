"""A policy behind an OpenAI-compatible API: `http://host:port/v1#model`, OpenRouter, OpenAI and so on.

Uses httpx2, like `inference.client`: no SDK, whose own retries would hide a server's requests from ours, and no MLX.
Keys come from the environment and are only sent to their own host; they appear in no error, repr or log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

from inference import RequestRefused, ServerUnavailable, network
from inference.client import BadAnswer, retry
from inference.types import OBSERVATION
from legos_envs import Decision
from legos_train.rollout.players.actors import CONNECTIONS, TIMEOUT, TOKENS
from legos_train.rollout.players.background import Background
from legos_train.rollout.players.chat_api import Reply, error_text, key_for, key_name, read_reply, split, too_long

LATER = (408, 409, 425, 429)
HOPELESS = (301, 302, 303, 307, 308, 401, 402, 403, 404)
UNKNOWN = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|cannot find field|invalid (?:field|param)",
    re.I,
)
"""How servers report an unknown field."""
MAX_ANSWER = 16 << 20
MAX_SAID = 500
"""Maximum characters of a server's error message to quote."""
GIVEN_UP = 3
"""Actions that must fail in a row, each after all attempts, before the endpoint is given up."""
UNHEARD = 4
"""Attempts at a server that has never answered, which is more likely absent than busy."""
PATIENT = retry.Retry(attempts=8, first=0.5, most=20.0, budget=240.0)


class EndpointPlayer:
    """A policy that asks a server; a coroutine function of a `Decision`.

    Args:
        spec: `URL#MODEL`, such as `http://127.0.0.1:8000/v1#tiny` or `https://openrouter.ai/api/v1#qwen/qwen3-8b`.
        temperature: sampling temperature.
        max_tokens: maximum tokens per action.
        system: prepended to every conversation.
        ask: a template for every message to the model, with `{observation}` in it; "" for none.
        timeout: seconds for one attempt, after which the server counts as stalled and is retried.
        retry: how often and how long to retry after 408, 409, 425, 429, 5xx, lost connections, stalls and answers
            that are malformed. Other errors (a wrong key, no such model) are final.
        connections: concurrent requests.
        body: additional fields of every request, such as `{"reasoning_effort": "low"}`; they override our own.
        transport: of httpx2, instead of the network.

    Raises:
        ValueError: the spec is not a URL with a model, or the environment names a proxy of an unsupported kind.
    """

    def __init__(
        self,
        spec: str,
        *,
        temperature: float = 1.0,
        max_tokens: int = TOKENS,
        system: str | None = None,
        ask: str = "",
        timeout: float = TIMEOUT,
        retry: retry.Retry | None = None,
        connections: int = CONNECTIONS,
        body: Mapping[str, Any] | None = None,
        transport: Any = None,
    ):
        self.url, self.model = split(spec)
        self._proxied = network.proxy_for(self.url) is not None
        self.system, self.ask, self.timeout, self.retry = system, ask, timeout, retry or PATIENT
        self.max_tokens = max_tokens
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        self._optional = {"temperature", "seed"}
        self._more = dict(body or {})
        self._key, self._transport, self._connections = key_for(self.url), transport, connections
        self._background = Background()
        self._http: Any = None
        self._gate: asyncio.Semaphore | None = None
        self._lost, self._last = 0, ""
        self._answered = False

    def __repr__(self) -> str:
        return f"Endpoint({self.url}#{self.model})"

    async def __call__(self, decision: Decision) -> Reply:
        """Raises ServerUnavailable, RequestRefused or BadAnswer if there is no reply."""
        return await asyncio.wrap_future(self._background.start(self._ask(decision)))

    def revive(self) -> None:
        """Makes an endpoint that was given up usable again."""
        self._lost = 0

    def close(self) -> None:
        """Ends running requests, the connections and the thread."""
        if self._http is not None:
            self._background.call(self._http.aclose())
        self._background.close()

    async def _ask(self, decision: Decision) -> Reply:
        messages = [dict(message) for message in decision.messages]
        if self.ask:
            for message in messages:
                if message["role"] == "user":
                    message["content"] = self.ask.replace(OBSERVATION, message["content"])
        if self.system is not None and (not messages or messages[0]["role"] != "system"):
            messages.insert(0, {"role": "system", "content": self.system})
        self._gate = self._gate or asyncio.Semaphore(self._connections)
        async with self._gate:
            if self._lost >= GIVEN_UP:
                raise ServerUnavailable(
                    f"{self!r} was given up after {self._lost} lost actions; the last: {self._last}"
                )
            try:
                reply = await self._repeat(messages, decision.seed & 0x7FFFFFFF)
            except (ServerUnavailable, RequestRefused, BadAnswer) as error:
                final = isinstance(error, RequestRefused) and error.status in HOPELESS
                self._lost, self._last = (GIVEN_UP if final else self._lost + 1), str(error)
                raise
            self._lost = 0
            return reply

    async def _repeat(self, messages: list[dict[str, str]], seed: int) -> Reply:
        """Like `Retry.run`, but also retries stalls and malformed answers, since actions are small.

        A prompt that exceeds the context gets an empty answer, as from a local model.
        """
        started, failures, changes, room = time.monotonic(), 0, 0, None
        while True:
            sent = dict(self._options), set(self._optional)
            try:
                return await self._once(messages, seed, room)
            except RequestRefused as error:
                changes += 1
                if error.status in (400, 413, 422) and (left := too_long(error.message)) is not None:
                    if not left or room is not None:
                        return overflow()
                    room = left
                    continue
                if error.status not in (400, 422) or changes > 4:
                    raise
                if sent == (self._options, self._optional) and not self._adapt(error.message):
                    raise  # else another action has meanwhile found out what this API accepts
                continue
            except (ServerUnavailable, BadAnswer) as error:
                failures += 1
                pause = self.retry.wait(failures, getattr(error, "retry_after", None))
                most = self.retry.attempts if self._answered else min(self.retry.attempts, UNHEARD)
                if failures >= most or time.monotonic() - started + pause > self.retry.budget:
                    raise
            await asyncio.sleep(pause)

    def _adapt(self, said: str) -> bool:
        """Whether a refused request can be adapted to this API; APIs differ in a few names."""
        if "max_completion_tokens" in said and "max_tokens" in self._options:
            self._options["max_completion_tokens"] = self._options.pop("max_tokens")
            return True
        for name in sorted(self._optional):
            if name in said and UNKNOWN.search(said):
                self._optional.discard(name)
                self._options.pop(name, None)
                return True
        return False

    async def _once(self, messages: list[dict[str, str]], seed: int, room: int | None = None) -> Reply:
        import httpx2

        body = {"model": self.model, "messages": messages, **self._options}
        if room is not None:
            for name in {"max_tokens", "max_completion_tokens"} & set(body):
                body[name] = min(body[name], room)
        if "seed" in self._optional:
            body["seed"] = seed
        if urlsplit(self.url).hostname == "openrouter.ai":
            body["usage"] = {"include": True}
        body |= self._more
        if self._http is None:
            headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
            limits = httpx2.Limits(max_connections=self._connections, keepalive_expiry=10.0)
            self._http = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=10.0),
                transport=self._transport or network.transport(self.url, limits),
                follow_redirects=False,
                trust_env=False,
            )
        try:
            async with (
                asyncio.timeout(self.timeout),
                self._http.stream("POST", f"{self.url}/chat/completions", json=body) as response,
            ):
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER:
                        self._fail(BadAnswer(f"{self!r} sent more than {MAX_ANSWER} bytes"))
                return self._read(response.status_code, response.headers, bytes(content))
        except (TimeoutError, httpx2.TimeoutException):
            self._fail(ServerUnavailable(f"{self!r} did not answer within {self.timeout:g} seconds", timed_out=True))
        except httpx2.DecodingError:
            self._fail(BadAnswer(f"{self!r} sent a body that cannot be decoded"))
        except httpx2.TransportError as error:
            self._fail(ServerUnavailable(self._unreachable(error)))

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Reply:
        self._answered = True
        answer = None
        with contextlib.suppress(ValueError, RecursionError):  # an error page need not be JSON
            answer = json.loads(content)
        if status == 200:
            try:
                return read_reply(answer)
            except BadAnswer as error:
                begins = f"; it begins {self._clean(text(content))[:80]!r}" if answer is None else ""
                self._fail(BadAnswer(f"{self!r}: {self._clean(error)[:MAX_SAID]}{begins}"))
        said = self._clean(error_text(answer) or text(content))[:MAX_SAID]
        if status >= 500 or status in LATER:
            wait = retry.retry_after(headers.get("Retry-After"))
            if wait is not None and wait > self.retry.budget:
                said += f"; it asks to wait {wait:.0f} s, longer than retries may take"
            elif status == 429:
                said += "; fewer --connections may help"
            self._fail(ServerUnavailable(f"{self!r}: {said} ({status})", status=status, retry_after=wait))
        if 300 <= status < 400:
            there = self._clean(headers.get("Location", "nowhere")).removesuffix("/chat/completions")
            said = f"it redirects to {there}, which Legos does not follow; give the address of the API itself"
        if status in (401, 403) and self._key is None:
            said += f"; no key was sent: set {key_name(self.url)}"
        elif status == 401:
            said += f"; the key in {key_name(self.url)} was sent and is not accepted there"
        self._fail(RequestRefused(status, f"{self!r}: {said}"))

    def _clean(self, text: object) -> str:
        return str(text) if self._key is None else str(text).replace(self._key, "***")

    def _unreachable(self, error: Exception) -> str:
        there = "" if self._answered else "; is a server running there?"
        if self._proxied:
            there = ", through the proxy that the environment names (HTTPS_PROXY or ALL_PROXY)"
        return f"{self!r} cannot be reached ({type(error).__name__}: {self._clean(error)}){there}"

    @staticmethod
    def _fail(error: Exception) -> NoReturn:
        raise error from None


def reach(spec: str, seconds: float = 5.0) -> None:
    """Connects to an endpoint, or to the proxy on the way to it, once and without a request.

    Raises:
        ServerUnavailable: nothing listens there.
        ProxyError: as `network.proxy_for`.
    """
    url, model = split(spec)
    proxy = network.proxy_for(url)
    address = urlsplit(proxy or url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), seconds).close()
    except OSError as error:
        why = f"the proxy of the environment, {address.hostname}:{port}: " if proxy else ""
        hint = "check HTTPS_PROXY and ALL_PROXY, or set NO_PROXY" if proxy else "is a server running there?"
        raise ServerUnavailable(
            f"Endpoint({url}#{model}) cannot be reached ({why}{error.strerror or error}); {hint}"
        ) from None


def overflow() -> Reply:
    """The reply to a prompt that is too long for the model."""
    reply = Reply("")
    reply.finish_reason = "overflow"
    return reply


def text(content: bytes) -> str:
    return content[: 4 * MAX_SAID].decode("utf-8", "replace")
