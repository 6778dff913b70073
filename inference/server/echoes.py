"""Echoed prompts with the log-probabilities of their own tokens, as lm-eval requests them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from inference.engine import AsyncEngine, Engine, PromptPart
from inference.server.choices import Choice, TokenReport
from inference.server.protocol import CompletionRequest, ServerError
from inference.types import AdapterInfo, Completion, Request, UnknownAdapter


async def echo(engine: AsyncEngine, report: TokenReport, body: CompletionRequest, choices: Sequence[Choice]) -> None:
    """Gives every choice its prompt's text and, with `logprobs`, those of its tokens; with `max_tokens` 0 end it.

    ServerError 400 for a prompt that the engine refuses, 404 if the adapter is gone, 500 if the model fails.
    """
    read: dict[tuple[int, ...], tuple[list[PromptPart], AdapterInfo | None]] = {}
    for choice in choices:
        prompt = tuple(choice.request.prompt)
        given = body.prompts[choice.index // body.n]
        choice.prompt_text = given if isinstance(given, str) else report.text(prompt)
        if body.logprobs is not None:
            if prompt not in read:
                read[prompt] = await _read_prompt(engine, choice.request, body.logprobs)
            parts, choice.prompt_adapter = read[prompt]
            choice.prompt_logprobs = [None, *(p for part in parts for p in part.logprobs)]
            tops = [top for part in parts for top in part.tops] or [[]] * (len(prompt) - 1)
            choice.prompt_tops = [None, *tops]
    if body.max_tokens == 0:
        unread = [choice.request for choice in choices if tuple(choice.request.prompt) not in read]

        def check(inner: Engine) -> dict[str, AdapterInfo]:
            for request in unread:  # refused like any other; a reading that never starts holds nothing
                inner.prompt_logprobs(request.prompt, request.adapter)
            return inner.adapters()

        with refusals():
            published = await engine.call(check)
        for choice in choices:
            now = published.get(choice.request.adapter or "")
            _, adapter = read.get(tuple(choice.request.prompt), ([], now))  # the adapter it was read under, if any
            _end_unwritten(choice, adapter)


class Outdated(Exception):
    """The adapter that a prompt was read under is no longer the current version of its name."""


def check_current(engine: Engine, choices: Sequence[Choice]) -> None:
    """Raises `Outdated` if a choice would be sampled under other weights than its prompt was read under."""
    published = engine.adapters()
    for choice in choices:
        then, now = choice.prompt_adapter, published.get(choice.request.adapter or "")
        if then is not None and (now is None or (then.version, then.digest) != (now.version, now.digest)):
            raise Outdated


async def _read_prompt(engine: AsyncEngine, request: Request, top: int) -> tuple[list[PromptPart], AdapterInfo | None]:
    """The parts of a prompt, and the adapter that they were read under."""
    try:
        with refusals():
            return await _parts_of(engine, request, top)
    except FloatingPointError as error:
        raise ServerError(500, f"the prompt cannot be read: {error}", "server_error") from error


async def _parts_of(engine: AsyncEngine, request: Request, top: int) -> tuple[list[PromptPart], AdapterInfo | None]:
    def begin(inner: Engine) -> tuple[Generator[PromptPart, None, None], AdapterInfo | None, PromptPart | None]:
        reading = inner.prompt_logprobs(request.prompt, request.adapter, top=top)
        return reading, inner.adapters().get(request.adapter or ""), next(reading, None)

    parts: list[PromptPart] = []
    reading, adapter, part = await engine.call(begin)
    try:
        while part is not None:
            parts.append(part)
            part = await engine.call(lambda _: next(reading, None))
    finally:
        if not engine.closing:
            engine.worker.call(lambda _: reading.close())  # releases the adapter
    return parts, adapter


def _end_unwritten(choice: Choice, adapter: AdapterInfo | None) -> None:
    """Ends a choice without tokens: only its prompt was requested."""
    version, digest = (adapter.version, adapter.digest) if adapter else (0, None)
    count, name = len(choice.request.prompt), choice.request.adapter
    choice.done = Completion(-1, [], [], [], "length", name, version, count, 0, adapter_digest=digest)


@contextmanager
def refusals() -> Iterator[None]:
    """Turns the engine's refusals into errors of the API."""
    try:
        yield
    except UnknownAdapter as error:  # removed since its name was looked up
        raise ServerError(404, str(error)[:500], "not_found_error") from error
    except ValueError as error:
        raise ServerError(400, str(error)[:500]) from error
