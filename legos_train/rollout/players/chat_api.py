"""Common parts of OpenAI-compatible APIs: addresses, keys, and the format of answers."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from inference.address import OWN_KEY, Address, SecretError, has_secret
from inference.client import BadAnswer

LONG_PROMPT = re.compile(
    r"context[_ -]?(?:length|window|size)|maximum context|the context holds|prompt is too long|exceed_context", re.I
)
"""Server messages about a prompt, or a prompt and its answer, that exceeds the model's context."""
ROOM = (
    re.compile(r"context (?:length|window|size)\D{0,12}?(\d+)", re.I),
    re.compile(
        r"(\d+) (?:input tokens|prompt tokens|tokens from the input|in the messages|in the prompt|of text input)", re.I
    ),
)
BROKEN_OFF = ("error", "abort")
"""Finish reasons of answers that the server ended, not the model: OpenRouter's, and vLLM's and `legos serve`'s."""
KEYS = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """The cost of one action as reported by the API: tokens, and US dollars if given (else None)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class Reply(str):
    """The text of an action with its `usage` (None if not reported) and `finish_reason`."""

    usage: ApiUsage | None = None
    finish_reason: str | None = None


def split(spec: str) -> tuple[str, str]:
    """URL without a trailing slash, and model. Raises SecretError if malformed."""
    url, mark, model = spec.partition("#")
    example = "http://127.0.0.1:8000/v1#MODEL"
    if has_secret(f"#{model}"):
        raise SecretError(f"the part after the # of an endpoint is its model, not a key; set {OWN_KEY} instead")
    address = Address.parse(url, example, f"the environment variable {key_name(url)}")
    if not mark or not model.strip():
        raise ValueError(f"the endpoint {address} names no model; write it as {example}")
    return str(address) + ("" if address.path else "/v1"), model.strip()


def is_endpoint(word: str) -> bool:
    """Whether a name is an endpoint's address, even a malformed one."""
    return "://" in word


def checked_word(word: str) -> str:
    """The name of a player, unchanged.

    Raises:
        SecretError: it contains a user name, a password or a key, or is a malformed address.
        ValueError: it is the address of an endpoint and names no model.
    """
    if is_endpoint(word):
        split(word)
    elif has_secret(word):
        raise SecretError(f"a policy name must not contain a key: set the environment variable {OWN_KEY}")
    return word


def too_long(said: str) -> int | None:
    """The tokens left for an answer if a server refuses a prompt for its length, 0 if unknown; None if it refuses for
    another reason.
    """
    if not LONG_PROMPT.search(said):
        return None
    context, prompt = (pattern.search(said) for pattern in ROOM)
    return max(0, int(context[1]) - int(prompt[1])) if context and prompt else 0


def key_name(url: str) -> str:
    """The environment variable that holds the key of an endpoint."""
    host = re.match(r"https?://(?:[^/]*@)?([\w.-]+)", url, re.IGNORECASE)
    return KEYS.get(host[1].lower(), OWN_KEY) if host else OWN_KEY


def key_for(url: str) -> str | None:
    """The key of an endpoint, or None. Those of public services are never sent unencrypted.

    Raises:
        ValueError: it is not valid in a header, or the URL of a public service is not https.
    """
    name = key_name(url)
    if name != OWN_KEY and urlsplit(url).scheme != "https":
        raise ValueError(f"{url} must start with https, since a key is sent to it")
    key = os.environ.get(name) or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError(f"{name} must be visible ASCII characters without spaces")
    return key


def read_reply(answer: Any) -> Reply:
    """The reply in an answer of /chat/completions. Raises BadAnswer if it is malformed.

    A refusal, a filtered text, or a thought without an answer count as the model's own: an empty text.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    if isinstance(choice, dict) and (choice.get("error") or reason in BROKEN_OFF):
        raise BadAnswer(f"the answer broke off: {error_text(choice) or f'finish_reason is {reason!r}'}")
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswer("the answer is not a chat completion" + (f": {said}" if (said := error_text(answer)) else ""))
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not (content is None or isinstance(content, str)):
        raise BadAnswer(f"the content of the answer is a {type(content).__name__}")
    # Lone surrogates, which JSON can spell, can neither be tokenised nor written to a log.
    reply = Reply((content or "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    reply.finish_reason = reason if isinstance(reason, str) else None
    usage = answer.get("usage")
    if isinstance(usage, dict):
        cost = usage.get("cost")
        known = isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost)
        reply.usage = ApiUsage(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            float(cost) if known and cost is not None else None,
        )
    return reply


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def error_text(answer: Any) -> str:
    """The message of an error answer in OpenAI's or FastAPI's format; "" if there is none."""
    error = answer.get("error", answer.get("detail")) if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""
