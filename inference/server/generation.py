"""From an HTTP request to engine requests, and from their events to choices."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from inference import tool_calls
from inference.bounded_cache import BoundedCache
from inference.engine import AsyncEngine
from inference.server.bodies import LONG_WORK, Reader
from inference.server.choices import Choice, TokenReport
from inference.server.echoes import check_current, refusals
from inference.server.grammars import Grammar, Grammars
from inference.server.guides import Guides
from inference.server.metrics import Metrics
from inference.server.protocol import ChatRequest, CompletionRequest, SamplingRequest, ServerError
from inference.server.texts import MAX_TEXT
from inference.text import Conversations, Renderer, TextEncoder, TextStream
from inference.tool_calls import CallReader
from inference.types import Completion, Delta, Request

MOST_TOOL_TALKS, TOOL_TALK_BYTES = 4, 16 << 20
"""How many tool lists have their conversations remembered, and how many bytes of those."""


class CompletionHandler:
    """Answers completion requests with one engine."""

    def __init__(
        self,
        engine: AsyncEngine,
        conversations: Conversations,
        tokenizer: Any,
        context: int,
        metrics: Metrics,
        guides: Guides,
    ) -> None:
        self.engine, self.conversations, self.metrics = engine, conversations, metrics
        self.tokenizer, self.context = tokenizer, context
        self.encoder = TextEncoder(tokenizer)
        self.report, self.guides = TokenReport(tokenizer), guides
        self.stop_ids = conversations.renderer.stop_ids
        # As if each token were the longest of the vocabulary: longer texts are refused before they are tokenised.
        self._most_text = context * max(len(token.encode()) for token in tokenizer.get_vocab())
        self._talks: dict[bool | None, Conversations] = {None: conversations}
        self._tool_talks: BoundedCache[Conversations] = BoundedCache(MOST_TOOL_TALKS, 1 << 20)  # bytes of the keys

    # --- requests ----------------------------------------------------------------------------------------------------

    def check_texts(self, texts: Iterable[str]) -> None:
        """ServerError 400 if one text, or all of them together, exceed the limit for tokenising."""
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
        """Whether the model's chat template, a program that may be slow, has to be run."""
        if body.callable:
            return True
        talk = self._talks.get(body.thinking)
        return talk is None or not talk.renderer.knows(tuple(part["role"] for part in body.dialogue))

    async def guide(self, body: ChatRequest, reader: Reader) -> Grammar | None:
        """The grammar for the replies, if any. ServerError as in `Guides.compile`, and if there is no end token."""
        schema, tools = body.schema_to_follow, body.must_call
        if schema is None and not tools:
            return None
        what = "response_format" if schema is not None else "tool_choice"
        renderer = (await reader.run(LONG_WORK, lambda: self._talk(body))).renderer
        after = renderer.thoughts.close if renderer.opens_thought and renderer.thoughts else None
        try:
            end = renderer.end_id
        except ValueError as error:
            raise ServerError(400, f"{what} cannot be used: {error}") from error

        def make(grammars: Grammars) -> Grammar:
            if schema is not None:
                return grammars.schema(schema, after)
            return grammars.lark(tool_calls.grammar(tools, renderer.markers), after)

        return await self.guides.compile(what, end, make)

    def chat_choices(self, body: ChatRequest, adapter: str | None, guide: Grammar | None = None) -> list[Choice]:
        """n choices of one conversation. ServerError 400 if it cannot be served."""
        self.check_texts(body.texts())
        messages = body.dialogue
        talk = self._talk(body)
        try:
            prompt = talk.prompt(messages)
        except ValueError as error:
            raise ServerError(400, f"the chat template refuses these messages: {error}"[:300]) from error
        tops = (body.top_logprobs or 0) if body.logprobs else 0
        choices = self._choices(body, adapter, [prompt], body.limit, tops, messages, talk, guide)
        if names := {tool["function"]["name"] for tool in body.callable}:
            for choice in choices:
                choice.reader = CallReader(names)
        return choices

    def _talk(self, body: ChatRequest) -> Conversations:
        """Conversations with these tools and this thinking switch. ServerError 400 if the template cannot do it."""
        thinking, tools = body.thinking, body.callable
        if tools:
            return self._tool_talk(thinking, tools)
        if thinking not in self._talks:
            try:
                self._talks[thinking] = Conversations(Renderer(self.tokenizer, enable_thinking=thinking))
            except ValueError as error:
                raise ServerError(400, f"chat_template_kwargs.enable_thinking cannot be used: {error}") from error
        return self._talks[thinking]

    def _tool_talk(self, thinking: bool | None, tools: list[dict[str, Any]]) -> Conversations:
        key = (repr(thinking), json.dumps(tools))
        talk = self._tool_talks.get(key)
        if talk is None:
            try:
                renderer = Renderer(self.tokenizer, enable_thinking=thinking, tools=tools)
            except ValueError as error:
                raise ServerError(400, f"tools cannot be used: {error}"[:500]) from error
            talk = self._tool_talks.put(key, Conversations(renderer, TOOL_TALK_BYTES))
        return talk

    def text_choices(self, body: CompletionRequest, adapter: str | None) -> list[Choice]:
        """n choices of every prompt."""
        self.check_texts(body.texts())
        prompts = [self._ids(prompt) for prompt in body.prompts]
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
        guide: Grammar | None = None,
    ) -> list[Choice]:
        params = body.params(
            max_tokens=limit,
            top_logprobs=tops,
            stop_ids=frozenset(body.stop_token_ids or ()) | (frozenset() if body.ignore_eos else self.stop_ids),
            allowed=self._allowed(body),
            guide=guide,
        )
        bases = [secrets.randbits(63) if seed is None else seed for seed in body.seeds_of(len(prompts))]
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
        """Hands the choices to the engine, all or none.

        ServerError 400 if it refuses them, 404 if the adapter is gone; `Outdated` as in `check_current`.
        """
        echoed = any(choice.prompt_adapter for choice in choices)
        check = (lambda engine: check_current(engine, choices)) if echoed else None
        with refusals():
            return await self.engine.submit([choice.request for choice in choices], check)

    async def finish(self, ids: list[int], choices: list[Choice]) -> None:
        """Waits for all choices; if cancelled, aborts those still running."""
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
        """Adds an event to a choice; returns the new text that is certain."""
        if isinstance(event, Delta):
            choice.tokens += event.tokens
            choice.logprobs += event.logprobs
            choice.tops += event.top_logprobs or []
            return choice.read(event.tokens)
        fresh = event.tokens[len(choice.tokens) :]
        choice.tokens, choice.logprobs, choice.done = event.tokens, event.logprobs, event
        choice.tops = event.top_logprobs or []
        piece = choice.read(fresh, last=True)
        self.count(event)
        whole = event.finish_reason in ("stop", "length") and not choice.text.stopped  # no tokens behind its text
        if choice.messages is not None and whole:
            choice.talk.remember(choice.messages, choice.request.prompt, event.tokens, choice.said, choice.calls)
        return piece

    def count(self, *completions: Completion) -> None:
        """Adds completions that have ended to the metrics."""
        for done in completions:
            self.metrics.prompt_tokens.inc(done.prompt_tokens)
            self.metrics.cached_tokens.inc(done.cached_tokens)
            self.metrics.generated(done.adapter, len(done.tokens))
            self.metrics.finished.labels(done.finish_reason).inc()

    def raise_faults(self, choices: Sequence[Choice]) -> None:
        """ServerError 500 when the engine ended a choice with an error, 400 if its grammar could not continue."""
        for choice in choices:
            if fault := choice.fault():
                raise ServerError(400, fault)
            if choice.done is not None and choice.done.finish_reason == "error":
                raise ServerError(500, f"generation failed: {choice.done.error}"[:300], "server_error")
