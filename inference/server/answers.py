"""Answers: complete ones, server-sent events, and the ids of a text."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from inference.server.choices import Choice, finite, usage
from inference.server.generation import CompletionHandler
from inference.server.protocol import ChatRequest, SamplingRequest, ServerError, TokenizeRequest, error_body
from inference.server.tools import dialogue
from inference.types import Completion, Delta

logger = logging.getLogger(__name__)


def envelope(kind: str, model: str) -> dict[str, Any]:
    """The head of an answer."""
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


def whole(generator: CompletionHandler, body: SamplingRequest, choices: Sequence[Choice], model: str) -> bytes:
    """The answer to a request that does not stream."""
    chat = isinstance(body, ChatRequest)
    answer = as_json(envelope("chat.completion" if chat else "text_completion", model) | {"choices": [], "usage": 0})
    parts = [as_json(_choice(generator, body, choice, chat)) for choice in choices]  # one by one: other threads can run
    before, _, _ = answer.rpartition('],"usage":0}')
    return f'{before}{",".join(parts)}],"usage":{as_json(usage(choices))}}}'.encode()


def tokenized(generator: CompletionHandler, body: TokenizeRequest) -> bytes:
    """The answer to /tokenize."""
    generator.check_texts(body.texts())
    if body.prompt is not None:
        ids = generator.encoder.plain(body.prompt)
    else:
        try:
            ids = list(generator.conversations.prompt(dialogue(body.messages or ())))
        except ValueError as error:
            raise ServerError(400, f"the chat template refuses these messages: {error}"[:300]) from error
    parts = [as_json(ids[start : start + 8192])[1:-1] for start in range(0, len(ids), 8192)]
    return f'{{"tokens":[{",".join(parts)}],"count":{len(ids)},"max_model_len":{generator.context}}}'.encode()


def as_json(value: Any) -> str:
    """A value as JSON, in the format of answers."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _choice(generator: CompletionHandler, body: SamplingRequest, choice: Choice, chat: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"index": choice.index, "finish_reason": choice.reason}
    if chat:
        answer["message"] = {"role": "assistant", "content": choice.said}
        if choice.calls:
            answer["message"] |= {"content": choice.said or None, "tool_calls": choice.made_calls()}
    else:
        answer["text"] = choice.prompt_text + choice.text.text
    answer["logprobs"] = generator.report.logprobs(choice, 0, chat=chat) if body.wants_logprobs else None
    return answer | _provenance(body, choice)


def _provenance(body: SamplingRequest, choice: Choice) -> dict[str, Any]:
    """The policy version that answered, and its tokens."""
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
        facts["token_logprobs"] = [finite(p) for p in done.logprobs]
        facts["token_sampled_logprobs"] = [finite(p) for p in done.sampled_logprobs]
        if done.top_logprobs is not None:
            facts["token_top_logprobs"] = [[(i, finite(p)) for i, p in top] for top in done.top_logprobs]
    return facts


UNSENT = 256
"""Events of a stream that wait to be sent; the others stay with the engine, whose room they keep occupied."""


async def events(
    generator: CompletionHandler, body: SamplingRequest, ids: list[int], choices: list[Choice], model: str
) -> AsyncGenerator[bytes, None]:
    """Server-sent events of a streaming request; ends with [DONE]. Closing it early aborts its running completions."""
    chat = isinstance(body, ChatRequest)
    head = envelope("chat.completion.chunk" if chat else "text_completion", model)
    with_logprobs = body.wants_logprobs
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    inbox: asyncio.Queue[tuple[Choice, Delta | Completion | Exception]] = asyncio.Queue(UNSENT)
    start = time.perf_counter()

    async def follow(request_id: int, choice: Choice) -> None:
        try:
            async with aclosing(generator.engine.events(request_id)) as own:
                async for event in own:
                    await inbox.put((choice, event))
        except Exception as error:  # else the stream would wait forever
            await inbox.put((choice, error))

    tasks = [asyncio.ensure_future(follow(*pair)) for pair in zip(ids, choices)]
    try:
        if chat:
            for choice in choices:
                yield _chunk(head, [{"index": choice.index, "delta": {"role": "assistant", "content": ""}}], with_usage)
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
            calls = [{"index": i, **call} for i, call in enumerate(choice.made_calls())][choice.told_calls :]
            choice.told_calls += len(calls)
            delta = ({"content": piece} if piece else {}) | ({"tool_calls": calls} if calls else {})
            part |= {"delta": delta} if chat else {"text": piece}
            fresh = choice.tokens[before:]
            if with_logprobs and fresh:
                part["logprobs"] = generator.report.logprobs(choice, before, chat=chat)
            if body.return_token_ids and fresh:
                part["token_ids"] = fresh
            if isinstance(event, Completion):
                waiting -= 1
                if event.finish_reason == "error":
                    yield _data({"error": {"message": "generation failed", "type": "server_error", "code": 500}})
                    return
                if fault := choice.fault():
                    yield _data(error_body(fault, "invalid_request_error", 400))
                    return
                part |= _provenance(body, choice) | ({"token_ids": fresh} if body.return_token_ids else {})
            elif not piece and not calls and not body.return_token_ids and not with_logprobs:
                continue
            yield _chunk(head, [part], with_usage)
        if with_usage:
            yield _data({**head, "choices": [], "usage": usage(choices)})
        generator.metrics.request_seconds.observe(time.perf_counter() - start)
        yield b"data: [DONE]\n\n"
    except Exception:  # the status has been sent: an event is the only way left to report it
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
    return f"data: {as_json(value)}\n\n".encode()
