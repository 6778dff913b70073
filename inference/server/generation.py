"""From an HTTP request to engine requests, and from their events to an answer, whole or streamed."""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inference.engine import AsyncEngine
from inference.server.metrics import Metrics
from inference.server.protocol import (
    MAX_TEXT,
    ChatRequest,
    CompletionRequest,
    SamplingRequest,
    ServerError,
    TokenizeRequest,
)
from inference.text import Conversations, Renderer, TextEncoder, TextStream, TokenBytes
from inference.types import Completion, ContextOverflow, Delta, Request, UnknownAdapter

logger = logging.getLogger(__name__)

Tops = list[list[tuple[int, float]]]


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    request: Request
    text: TextStream
    messages: list[dict[str, str]] | None
    talk: Conversations
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: Tops = field(default_factory=list)
    done: Completion | None = None
    offsets: list[int] = field(default_factory=list)  # characters before each token
    _characters: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))
    _seen: int = 0

    def __post_init__(self) -> None:
        self._characters.errors = "replace"

    @property
    def reason(self) -> str | None:
        """OpenAI's finish reason; "abort" when the adapter was published with that mode."""
        if self.done is None:
            return None
        return {"aborted": "abort"}.get(self.done.finish_reason, self.done.finish_reason)

    def numbers(self, with_ids: bool) -> int:
        """About how many numbers its answer holds."""
        return len(self.tokens) * (1 + self.request.sampling.top_logprobs) + with_ids * len(self.request.prompt)

    def count_characters(self, of: TokenBytes) -> None:
        """Bring `offsets` up to date."""
        for token in self.tokens[len(self.offsets) :]:
            self.offsets.append(self._seen)
            self._seen += len(self._characters.decode(of[token]))


class CompletionHandler:
    """Answers completion requests with one engine."""

    def __init__(
        self, engine: AsyncEngine, conversations: Conversations, tokenizer: Any, context: int, metrics: Metrics
    ) -> None:
        self.engine, self.conversations, self.metrics = engine, conversations, metrics
        self.tokenizer, self.context = tokenizer, context
        self.encoder = TextEncoder(tokenizer)
        self.bytes = TokenBytes(tokenizer)
        self._words: dict[int, str] = {}
        self.stop_ids = conversations.renderer.stop_ids
        # More bytes than this cannot fit the context, whatever they say.
        self._most_text = context * max(len(token.encode()) for token in tokenizer.get_vocab())
        self._talks: dict[bool | None, Conversations] = {None: conversations}

    # --- requests ----------------------------------------------------------------------------------------------------

    def check_texts(self, texts: Iterable[str]) -> None:
        """ServerError 400 when there is more text than is tokenised."""
        total = 0
        for text in texts:
            size = len(text) if text.isascii() else len(text.encode())
            total += size
            if size > self._most_text:
                raise ServerError(
                    400, f"a text of {size} bytes cannot fit the context; at most {self._most_text} are tokenised"
                )
        if total > MAX_TEXT:
            raise ServerError(400, f"the request has {total} bytes of text; at most {MAX_TEXT} are tokenised")

    def is_new(self, body: ChatRequest) -> bool:
        """Whether the model's chat template has to be run, a program that may take its time."""
        talk = self._talks.get(body.thinking)
        return talk is None or not talk.renderer.knows(tuple(message.plain()["role"] for message in body.messages))

    def chat_choices(self, body: ChatRequest, adapter: str | None) -> list[Choice]:
        """n choices of one conversation. ServerError 400 for what cannot be served."""
        self.check_texts(body.texts())
        messages = [message.plain() for message in body.messages]
        talk = self._talk(body.thinking)
        try:
            prompt = talk.prompt(messages)
        except ValueError as error:
            raise ServerError(400, f"the chat template refuses these messages: {error}"[:300]) from error
        tops = (body.top_logprobs or 0) if body.logprobs else 0
        return self._choices(body, adapter, [prompt], body.limit, tops, messages, talk)

    def _talk(self, thinking: bool | None) -> Conversations:
        """Conversations with the thinking switch on, off or left alone. ServerError 400 where there is none."""
        if thinking not in self._talks:
            try:
                self._talks[thinking] = Conversations(Renderer(self.tokenizer, enable_thinking=thinking))
            except ValueError as error:
                raise ServerError(400, f"chat_template_kwargs.enable_thinking cannot be used: {error}") from error
        return self._talks[thinking]

    def text_choices(self, body: CompletionRequest, adapter: str | None) -> list[Choice]:
        """n choices of every prompt."""
        self.check_texts(body.texts())
        prompt: Any = body.prompt
        several = isinstance(prompt, list) and not isinstance(prompt[0], int)
        prompts = [self._ids(one) for one in (prompt if several else [prompt])]
        return self._choices(body, adapter, prompts, body.max_tokens, body.logprobs or 0, None, self.conversations)

    def _ids(self, prompt: str | list[int]) -> tuple[int, ...]:
        ids = tuple(self.encoder.plain(prompt)) if isinstance(prompt, str) else tuple(prompt)
        if not ids:
            raise ServerError(400, "the prompt has no tokens; say something")
        return ids

    def _choices(
        self,
        body: SamplingRequest,
        adapter: str | None,
        prompts: Sequence[tuple[int, ...]],
        limit: int | None,
        tops: int,
        messages: list[dict[str, str]] | None,
        talk: Conversations,
    ) -> list[Choice]:
        params = body.params(
            max_tokens=limit,
            top_logprobs=tops,
            stop_ids=frozenset(body.stop_token_ids or ()) | (frozenset() if body.ignore_eos else self.stop_ids),
            allowed=self._allowed(body),
        )
        seeds = body.seed if isinstance(body.seed, list) else [body.seed] * len(prompts)
        bases = [secrets.randbits(63) if seed is None else seed for seed in seeds]
        return [
            Choice(index, Request(prompt, one, adapter, body.stream, park=True), text, messages, talk)
            for index, (prompt, one) in enumerate(
                (prompt, replace(params, seed=base + number))
                for prompt, base in zip(prompts, bases, strict=True)
                for number in range(body.n)
            )
            for text in [TextStream(self.tokenizer, one.stop, self.stop_ids)]
        ]

    def _allowed(self, body: SamplingRequest) -> tuple[tuple[int, ...], ...] | None:
        if body.guided_token_ids is not None:
            return tuple(tuple(ids) for ids in body.guided_token_ids)
        if body.guided_choice is None:
            return None
        try:
            end = self.conversations.renderer.end_id
        except ValueError as error:
            raise ServerError(400, f"guided_choice cannot be used: {error}") from error
        return tuple((*self.encoder.plain(text), end) for text in body.guided_choice)

    # --- answers -----------------------------------------------------------------------------------------------------

    async def submit(self, choices: list[Choice]) -> list[int]:
        """Hand the choices to the engine, all or none."""
        try:
            return await self.engine.submit([choice.request for choice in choices])
        except UnknownAdapter as error:  # it made room between being looked up and being used
            raise ServerError(404, str(error)[:500], "not_found_error") from error
        except (ContextOverflow, ValueError) as error:
            raise ServerError(400, str(error)[:500]) from error

    async def finish(self, ids: list[int], choices: list[Choice]) -> None:
        """Wait for all choices. Cancelled, it aborts those that still run."""
        start = time.perf_counter()
        try:
            for request_id, choice in zip(ids, choices):
                async for event in self.engine.events(request_id):
                    self.take(choice, event)
        finally:
            for request_id in ids:
                self.engine.abort(request_id)
        self.metrics.request_seconds.observe(time.perf_counter() - start)
        self.raise_faults(choices)

    def take(self, choice: Choice, event: Delta | Completion) -> str:
        """Add an event to a choice; returns the text that is certain and new."""
        if isinstance(event, Delta):
            choice.tokens += event.tokens
            choice.logprobs += event.logprobs
            choice.tops += event.top_logprobs or []
            return choice.text.push(event.tokens)
        fresh = event.tokens[len(choice.tokens) :]
        choice.tokens, choice.logprobs, choice.done = event.tokens, event.logprobs, event
        choice.tops = event.top_logprobs or []
        piece = choice.text.push(fresh, last=True)
        self._count(event)
        if choice.messages is not None and event.finish_reason in ("stop", "length"):
            choice.talk.remember(choice.messages, choice.request.prompt, event.tokens, choice.text.text)
        return piece

    def _count(self, done: Completion) -> None:
        self.metrics.prompt_tokens.inc(done.prompt_tokens)
        self.metrics.cached_tokens.inc(done.cached_tokens)
        self.metrics.generated(done.adapter, len(done.tokens))
        self.metrics.finished.labels(done.finish_reason).inc()

    def raise_faults(self, choices: Sequence[Choice]) -> None:
        """ServerError 500 when the engine ended a choice with an error."""
        for choice in choices:
            if choice.done is not None and choice.done.finish_reason == "error":
                raise ServerError(500, f"generation failed: {choice.done.error}"[:300], "server_error")

    def usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """Tokens used; a prompt that several choices share counts once."""
        first = [choice for choice in choices if choice.index % self._per_prompt(choices) == 0]
        prompt = sum(len(choice.request.prompt) for choice in first)
        cached = sum(choice.done.cached_tokens for choice in first if choice.done is not None)
        completion = sum(len(choice.tokens) for choice in choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    @staticmethod
    def _per_prompt(choices: Sequence[Choice]) -> int:
        prompts = {id(choice.request.prompt) for choice in choices}
        return max(1, len(choices) // max(1, len(prompts)))

    def logprobs(self, choice: Choice, start: int, *, chat: bool) -> dict[str, Any]:
        """The log-probabilities of a choice's tokens from `start` on, in the form of either API."""
        tokens = choice.tokens[start:]
        tops = choice.tops[start:] or [[] for _ in tokens]
        numbers = [_finite(p) for p in choice.logprobs[start:]]
        if not chat:
            choice.count_characters(self.bytes)
            return {
                "tokens": [self._word(token) for token in tokens],
                "token_logprobs": numbers,
                # Reversed, since parts of characters look alike and the most likely one is to stay.
                "top_logprobs": [{self._word(i): _finite(p) for i, p in reversed(top)} for top in tops],
                "text_offset": choice.offsets[start:],
            }
        content = [
            self._entry(token, number) | {"top_logprobs": [self._entry(i, _finite(p)) for i, p in top]}
            for token, number, top in zip(tokens, numbers, tops)
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._word(token), "logprob": logprob, "bytes": list(self.bytes[token])}

    def _word(self, token: int) -> str:
        word = self._words.get(token)
        if word is None:
            word = self._words[token] = str(self.tokenizer.decode([token], skip_special_tokens=False))
        return word


def _finite(logprob: float) -> float:
    """JSON has no infinities; -9999 is what OpenAI writes for a probability of zero."""
    return max(logprob, -9999.0)


def envelope(kind: str, model: str) -> dict[str, Any]:
    """The head of an answer."""
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


def whole(generator: CompletionHandler, body: SamplingRequest, choices: Sequence[Choice], model: str) -> bytes:
    """The answer to a request that does not stream."""
    chat = isinstance(body, ChatRequest)
    answer = _json(envelope("chat.completion" if chat else "text_completion", model) | {"choices": [], "usage": 0})
    parts = [_json(_choice(generator, body, choice, chat)) for choice in choices]  # one by one: other threads may run
    before, _, _ = answer.rpartition('],"usage":0}')
    return f'{before}{",".join(parts)}],"usage":{_json(generator.usage(choices))}}}'.encode()


def tokenized(generator: CompletionHandler, body: TokenizeRequest) -> bytes:
    """The answer to /tokenize."""
    generator.check_texts(body.texts())
    if body.prompt is not None:
        ids = generator.encoder.plain(body.prompt)
    else:
        try:
            ids = list(generator.conversations.prompt([message.plain() for message in body.messages or ()]))
        except ValueError as error:
            raise ServerError(400, f"the chat template refuses these messages: {error}"[:300]) from error
    parts = [_json(ids[start : start + 8192])[1:-1] for start in range(0, len(ids), 8192)]
    return f'{{"tokens":[{",".join(parts)}],"count":{len(ids)},"max_model_len":{generator.context}}}'.encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _choice(generator: CompletionHandler, body: SamplingRequest, choice: Choice, chat: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"index": choice.index, "finish_reason": choice.reason}
    if chat:
        answer["message"] = {"role": "assistant", "content": choice.text.text}
    else:
        answer["text"] = choice.text.text
    with_logprobs = body.logprobs if isinstance(body, ChatRequest) else getattr(body, "logprobs", None) is not None
    answer["logprobs"] = generator.logprobs(choice, 0, chat=chat) if with_logprobs else None
    return answer | _provenance(body, choice)


def _provenance(body: SamplingRequest, choice: Choice) -> dict[str, Any]:
    """Which policy version answered, and with which tokens."""
    done = choice.done
    assert done is not None
    facts: dict[str, Any] = {
        "adapter": done.adapter,
        "policy_version": done.policy_version,
        "adapter_digest": done.adapter_digest,
    }
    if done.token_versions is not None:
        facts["token_versions"] = done.token_versions
    if body.return_token_ids:
        facts |= {"token_ids": done.tokens, "prompt_token_ids": list(choice.request.prompt)}
        facts["token_logprobs"] = [_finite(p) for p in done.logprobs]
        facts["token_sampled_logprobs"] = [_finite(p) for p in done.sampled_logprobs]
        if done.top_logprobs is not None:
            facts["token_top_logprobs"] = [[(i, _finite(p)) for i, p in top] for top in done.top_logprobs]
    return facts


async def events(
    generator: CompletionHandler, body: SamplingRequest, ids: list[int], choices: list[Choice], model: str
) -> AsyncGenerator[bytes, None]:
    """Server-sent events of a request that streams; ends with [DONE]. Closed early, it aborts what still runs."""
    chat = isinstance(body, ChatRequest)
    head = envelope("chat.completion.chunk" if chat else "text_completion", model)
    with_logprobs = body.logprobs if isinstance(body, ChatRequest) else getattr(body, "logprobs", None) is not None
    usage = body.stream_options is not None and body.stream_options.include_usage
    inbox: asyncio.Queue[tuple[Choice, Delta | Completion | Exception]] = asyncio.Queue()
    start = time.perf_counter()

    async def follow(request_id: int, choice: Choice) -> None:
        try:
            async for event in generator.engine.events(request_id):
                inbox.put_nowait((choice, event))
        except Exception as error:  # else the stream would wait for ever
            inbox.put_nowait((choice, error))

    tasks = [asyncio.ensure_future(follow(*pair)) for pair in zip(ids, choices)]
    try:
        if chat:
            for choice in choices:
                yield _chunk(head, [{"index": choice.index, "delta": {"role": "assistant", "content": ""}}], usage)
        waiting, first = len(choices), True
        while waiting:
            choice, event = await inbox.get()
            if isinstance(event, Exception):
                raise event
            if first:
                generator.metrics.first_token.observe(time.perf_counter() - start)
                first = False
            before = len(choice.tokens)
            piece = generator.take(choice, event)
            part: dict[str, Any] = {"index": choice.index, "finish_reason": choice.reason}
            part |= {"delta": {"content": piece} if piece else {}} if chat else {"text": piece}
            fresh = choice.tokens[before:]
            if with_logprobs and fresh:
                part["logprobs"] = generator.logprobs(choice, before, chat=chat)
            if body.return_token_ids and fresh:
                part["token_ids"] = fresh
            if isinstance(event, Completion):
                waiting -= 1
                if event.finish_reason == "error":
                    yield _data({"error": {"message": "generation failed", "type": "server_error", "code": 500}})
                    return
                part |= _provenance(body, choice) | ({"token_ids": fresh} if body.return_token_ids else {})
            elif not piece and not body.return_token_ids and not with_logprobs:
                continue
            yield _chunk(head, [part], usage)
        if usage:
            yield _data({**head, "choices": [], "usage": generator.usage(choices)})
        generator.metrics.request_seconds.observe(time.perf_counter() - start)
        yield b"data: [DONE]\n\n"
    except Exception:  # the status has been sent: this is the only way to say it
        logger.exception("a stream failed")
        yield _data({"error": {"message": "internal error; see the server's log", "type": "server_error", "code": 500}})
    finally:
        for task in tasks:
            task.cancel()
        for request_id in ids:
            generator.engine.abort(request_id)


def _chunk(head: dict[str, Any], parts: list[dict[str, Any]], usage: bool) -> bytes:
    for part in parts:
        part.setdefault("finish_reason", None)
        part.setdefault("logprobs", None)
    return _data({**head, "choices": parts, **({"usage": None} if usage else {})})


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {_json(value)}\n\n".encode()
