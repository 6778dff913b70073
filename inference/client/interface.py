"""One interface for an engine in this process, a server, or several servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from inference.client.errors import Incompatible
from inference.client.packing import PackedAdapter
from inference.text import PROTOCOL
from inference.types import AdapterInfo, Completion, FinishReason, PublishMode, Request, SamplingParams

Message = Mapping[str, str]
"""`role` (system, user or assistant) and `content`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts: prompt, cached prompt tokens, reply."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply as text, with its tokens; attributes not listed are as in `Completion`.

    Attributes:
        text: without end tokens and without a stop text.
        prompt_ids: the prompt.
        token_ids: the sampled tokens, end token included.
    """

    text: str
    token_ids: list[int]
    logprobs: list[float]
    sampled_logprobs: list[float]
    finish_reason: FinishReason
    adapter: str | None
    policy_version: int
    usage: Usage
    prompt_ids: list[int]
    top_logprobs: list[list[tuple[int, float]]] | None = None
    token_versions: list[int] | None = None
    adapter_digest: str | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What an engine serves. The digests are hexadecimal SHA-256; see `loading.base_digest` and `identity`.

    max_adapters: most names at a time, for a pool the minimum over its servers; None: no known limit. max_queue: most
    completions at a time, waiting ones included.
    """

    protocol: int
    model: str
    base_digest: str
    tokenizer_digest: str
    template_digest: str
    vocab_size: int
    context: int
    adapters: dict[str, AdapterInfo] = field(default_factory=dict)
    max_adapters: int | None = None
    max_queue: int | None = None


class Client(Protocol):
    """Requests completions and publishes adapters, wherever the engine is. Use it with `async with`.

    A `session` names the conversation that a request belongs to, so that a router in front of several servers can keep
    it where its keys and values are; over HTTP it is the header `X-Session-ID`.
    """

    async def complete(self, request: Request) -> Completion:
        """Token ids in, token ids out. `stop_ids=None` means the end tokens of tokenizer and chat template.

        Cancelling it aborts the request. Raises RequestRefused if it cannot be served, ServerUnavailable if no engine
        answers.
        """
        ...

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        adapter: str | None = None,
        choices: Sequence[str] | None = None,
        session: str | None = None,
        **sampling: Any,
    ) -> ChatReply:
        """The assistant's reply to a conversation. Raises as `complete` does.

        Args:
            messages: the conversation so far.
            adapter: a published name, or None for the base model.
            choices: texts the reply must be one of; None allows anything.
            session: see `Client`.
            sampling: fields of `SamplingParams`.
        """
        ...

    async def publish(
        self,
        name: str,
        weights: Mapping[str, Any] | PackedAdapter,
        scale: float,
        version: int,
        mode: PublishMode = "pin",
    ) -> str:
        """Makes LoRA weights the current version of a name, as `Engine.publish` does; returns their digest.

        Repeating it changes nothing. Raises RequestRefused when they do not fit (400), or when this version is older
        than the last of the name or was published with other weights (409); the last version then keeps serving.
        """
        ...

    async def unpublish(self, name: str) -> None:
        """Removes an adapter; its running requests finish. RequestRefused 404 if there is none of that name."""
        ...

    async def info(self) -> ServerInfo:
        """What the engine serves; `check_compatible` compares it."""
        ...

    async def health(self) -> bool:
        """Whether the engine is making progress or idle. Never raises if there is no engine."""
        ...

    async def close(self) -> None:
        """Closes connections, and the engine if this client started it."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def chat_options(
    *, adapter: str | None = None, choices: Sequence[str] | None = None, **sampling: Any
) -> tuple[str | None, Sequence[str] | None, SamplingParams]:
    """Splits the keywords of `Client.chat`. TypeError for an unknown one."""
    return adapter, choices, SamplingParams(**sampling)


def check_compatible(
    info: ServerInfo, base_digest: str, tokenizer_digest: str, template_digest: str, vocab: int
) -> None:
    """Refuses a server that does not have the trainer's model: Incompatible names every difference."""
    ours = ServerInfo(PROTOCOL, info.model, base_digest, tokenizer_digest, template_digest, vocab, info.context)
    wrong = _unequal(info, ours)
    if wrong:
        reasons = ", ".join(f"{what} ({there} there, {here} here)" for what, there, here in wrong)
        raise Incompatible(
            f"the server's model {info.model!r:.100} is not the trainer's: {reasons}. "
            "Start the server with the same model and version of Legos"
        )


def _unequal(one: ServerInfo, other: ServerInfo) -> list[tuple[str, str, str]]:
    """Fields that must agree but do not, with both values."""
    names = {
        "protocol": "protocol",
        "base_digest": "base model",
        "tokenizer_digest": "tokenizer",
        "template_digest": "chat template",
        "vocab_size": "vocabulary",
    }
    pairs = [(what, getattr(one, name), getattr(other, name)) for name, what in names.items()]
    return [(what, _short(a), _short(b)) for what, a, b in pairs if a != b]


def _short(value: str | int) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else repr(value)
