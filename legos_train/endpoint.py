"""A policy behind an OpenAI-compatible API: `http://host:port/v1#model`, OpenRouter, OpenAI and the like.

On httpx2, as `inference.client` is: no SDK, whose own retries would hide from ours what a server asks for, and no MLX.
Keys come from the environment and go to their own host only; they appear in no error, repr or log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import urlsplit

from inference.client.errors import BadAnswer, RequestRefused, ServerUnavailable
from inference.client.retry import Retry, retry_after
from legos_envs import Decision
from legos_train.background import Background

KEYS = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}
OWN_KEY = "LEGOS_API_KEY"
LATER = (408, 409, 425, 429)
HOPELESS = (401, 402, 403, 404)
MAX_ANSWER = 16 << 20
GIVEN_UP = 3
"""Actions lost in a row, each after all its attempts, until the endpoint is not asked any more."""
PATIENT = Retry(attempts=8, first=0.5, most=20.0, budget=240.0)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one action took, as the API reports it: tokens, and US dollars where it says (None: it does not)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class Reply(str):
    """The text of an action with how it came about: `usage` (None when not reported) and `finish_reason`."""

    usage: Usage | None = None
    finish_reason: str | None = None


class Endpoint:
    """A policy that asks a server; a coroutine function of a `Decision`.

    Args:
        spec: `URL#MODEL`, such as `http://127.0.0.1:8000/v1#tiny` or `https://openrouter.ai/api/v1#qwen/qwen3-8b`.
        temperature: of sampling.
        max_tokens: most tokens of one action.
        system: put before every conversation.
        timeout: seconds for one attempt, after which the server has stalled and is asked again.
        retry: how often and how long to ask again after 408, 409, 425, 429, 5xx, lost connections, stalls and answers
            that are none. Others (a wrong key, no such model) are final.
        connections: requests under way at once.
        transport: of httpx2, instead of the network.

    Raises:
        ValueError: the spec is no URL with a model.
    """

    def __init__(
        self,
        spec: str,
        *,
        temperature: float = 1.0,
        max_tokens: int = 1024,
        system: str | None = None,
        timeout: float = 120.0,
        retry: Retry | None = None,
        connections: int = 32,
        transport: Any = None,
    ):
        self.url, self.model = split(spec)
        self.system, self.timeout, self.retry = system, timeout, retry or PATIENT
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        self._optional = {"temperature", "seed"}
        self._key, self._transport, self._connections = key_for(self.url), transport, connections
        self._background = Background()
        self._http: Any = None
        self._gate: asyncio.Semaphore | None = None
        self._lost, self._last = 0, ""

    def __repr__(self) -> str:
        return f"Endpoint({self.url}#{self.model})"

    async def __call__(self, decision: Decision) -> Reply:
        """Raises ServerUnavailable, RequestRefused or BadAnswer when it cannot be had."""
        return await asyncio.wrap_future(self._background.start(self._ask(decision)))

    def revive(self) -> None:
        """Ask again, although the endpoint was given up."""
        self._lost = 0

    def close(self) -> None:
        """Ends what is under way, the connections and the thread."""
        if self._http is not None:
            self._background.call(self._http.aclose())
        self._background.close()

    async def _ask(self, decision: Decision) -> Reply:
        messages = [dict(message) for message in decision.messages]
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
        """As `Retry.run`, but a stall and an answer that is none are tried again, too: actions are small."""
        started, failures, changes = time.monotonic(), 0, 0
        while True:
            sent = dict(self._options), set(self._optional)
            try:
                return await self._once(messages, seed)
            except RequestRefused as error:
                changes += 1
                if error.status != 400 or changes > 4:
                    raise
                if sent == (self._options, self._optional) and not self._adapt(error.message):
                    raise  # else another action has found out in the meantime what this API takes
                continue
            except (ServerUnavailable, BadAnswer) as error:
                failures += 1
                pause = self.retry.wait(failures, getattr(error, "retry_after", None))
                if failures >= self.retry.attempts or time.monotonic() - started + pause > self.retry.budget:
                    raise
            await asyncio.sleep(pause)

    def _adapt(self, said: str) -> bool:
        """Whether a refused request can be put so that this API takes it; they differ in a few names."""
        if "max_completion_tokens" in said and "max_tokens" in self._options:
            self._options["max_completion_tokens"] = self._options.pop("max_tokens")
            return True
        for name in sorted(self._optional):
            if name in said and "support" in said.lower():
                self._optional.discard(name)
                self._options.pop(name, None)
                return True
        return False

    async def _once(self, messages: list[dict[str, str]], seed: int) -> Reply:
        import httpx2

        body = {"model": self.model, "messages": messages, **self._options}
        if "seed" in self._optional:
            body["seed"] = seed
        if urlsplit(self.url).hostname == "openrouter.ai":
            body["usage"] = {"include": True}
        if self._http is None:
            headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
            limits = httpx2.Limits(max_connections=self._connections, keepalive_expiry=10.0)
            self._http = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=10.0),
                transport=self._transport or httpx2.AsyncHTTPTransport(limits=limits, trust_env=False),
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
            self._fail(BadAnswer(f"{self!r} sent what cannot be decoded"))
        except httpx2.TransportError as error:
            self._fail(ServerUnavailable(f"{self!r} cannot be reached ({type(error).__name__}: {self._clean(error)})"))

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Reply:
        answer = None
        with contextlib.suppress(ValueError, RecursionError):  # an error page need not be JSON
            answer = json.loads(content)
        if status == 200:
            try:
                return read_reply(answer)
            except BadAnswer as error:
                self._fail(BadAnswer(f"{self!r}: {error}"))
        said = self._clean(_error_text(answer) or content[:200].decode("utf-8", "replace"))
        if status >= 500 or status in LATER:
            wait = retry_after(headers.get("Retry-After"))
            self._fail(ServerUnavailable(f"{self!r}: {said} ({status})", status=status, retry_after=wait))
        if status in (401, 403) and self._key is None:
            said += f"; no key was sent: set {key_name(self.url)}"
        self._fail(RequestRefused(status, f"{self!r}: {said}"))

    def _clean(self, text: object) -> str:
        return str(text) if self._key is None else str(text).replace(self._key, "***")

    @staticmethod
    def _fail(error: Exception) -> NoReturn:
        raise error from None


def split(spec: str) -> tuple[str, str]:
    """URL without a last slash, and model. ValueError when the spec is none; a password in it is not repeated."""
    url, mark, model = spec.partition("#")
    example = "write it as http://127.0.0.1:8000/v1#MODEL"
    try:
        parts = urlsplit(url)
        port_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_fine = False
    if not port_fine or parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"this endpoint's URL cannot be read; {example}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"an endpoint's URL holds no user name or password; set {OWN_KEY} instead")
    if not mark or not model.strip():
        raise ValueError(f"the endpoint {url} names no model; {example}")
    return url.rstrip("/") + ("" if parts.path.strip("/") else "/v1"), model.strip()


def key_name(url: str) -> str:
    """The environment variable that holds the key of an endpoint."""
    return KEYS.get(urlsplit(url).hostname or "", OWN_KEY)


def key_for(url: str) -> str | None:
    """The key of an endpoint, or None. Those of public services are never sent unencrypted.

    Raises:
        ValueError: it cannot stand in a header, or the URL of a public service is not https.
    """
    name = key_name(url)
    if name != OWN_KEY and urlsplit(url).scheme != "https":
        raise ValueError(f"{url} must begin with https: a key goes there")
    key = os.environ.get(name) or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError(f"{name} must be visible ASCII characters without spaces")
    return key


def read_reply(answer: Any) -> Reply:
    """The reply in an answer of /chat/completions. BadAnswer when it is none.

    A refusal, a filtered text, or a thought without an answer are the model's own doing: an empty text.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswer("the answer is no chat completion" + (f": {said}" if (said := _error_text(answer)) else ""))
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not (content is None or isinstance(content, str)):
        raise BadAnswer(f"the content of the answer is a {type(content).__name__}")
    reply = Reply(content or "")
    reason = choice.get("finish_reason")
    reply.finish_reason = reason if isinstance(reason, str) else None
    usage = answer.get("usage")
    if isinstance(usage, dict):
        cost = usage.get("cost")
        known = isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost)
        reply.usage = Usage(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            float(cost) if known and cost is not None else None,
        )
    return reply


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _error_text(answer: Any) -> str:
    error = answer.get("error", answer.get("detail")) if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return text[:500] if isinstance(text, str) else ""
