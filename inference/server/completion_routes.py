"""Routes that take texts: completions, whole or streamed, and /tokenize."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from inference.server.answers import events, tokenized, whole
from inference.server.bodies import LONG_WORK, SHORT
from inference.server.choices import Choice
from inference.server.echoes import Outdated, echo
from inference.server.generation import CompletionHandler
from inference.server.grammars import Grammar
from inference.server.protocol import ChatRequest, CompletionRequest, ServerError, TokenizeRequest
from inference.server.responses import GrowingResponse, ResponseRequest
from inference.server.server import Server

T = TypeVar("T")


def add(app: FastAPI, server: Server) -> None:
    """Adds the routes to the application."""

    async def answer(
        request: Request,
        body: ChatRequest | CompletionRequest,
        count: int,
        make: Callable[[str | None, Grammar | None], list[Choice]],
        reply: GrowingResponse | None = None,
    ) -> Response:
        generator, model = server.open(), body.model or server.settings.model
        await server.fetch(body.model)
        adapter = server.resolve(body.model)
        size = len(await request.body())
        if isinstance(body, ChatRequest) and generator.is_new(body):
            size = LONG_WORK

        async def prepared() -> list[Choice]:
            guide = await generator.guide(body, server.reader) if isinstance(body, ChatRequest) else None
            choices = await server.reader.run(size, lambda: make(adapter, guide))
            await server.gate.wait()
            return choices

        with server.adapters.held(adapter):
            with server.room(count):
                guided = isinstance(body, ChatRequest) and bool(body.must_call or body.schema_to_follow is not None)
                at_once = size <= SHORT and server.gate.is_set() and not guided
                choices = make(adapter, None) if at_once else await unless_left(request, prepared())
            ids: list[int] | None = None
            while ids is None:
                if isinstance(body, CompletionRequest) and body.echo:
                    with server.room(count):
                        await unless_left(request, echo(server.engine, generator.report, body, choices))
                only_prompts = all(choice.done for choice in choices)
                with suppress(Outdated):  # a new version arrived meanwhile: read the prompt again under it
                    ids = [] if only_prompts else await generator.submit(choices)
        if not ids:
            generator.count(*(choice.done for choice in choices if choice.done))
        if body.stream:
            told = (
                reply.events(generator, ids[0], choices[0]) if reply else events(generator, body, ids, choices, model)
            )
            return _Events(generator, told, ids)
        if ids:
            await unless_left(request, generator.finish(ids, choices))
        size = sum(choice.size(body.return_token_ids) for choice in choices)
        written = (lambda: reply.whole(choices[0])) if reply else (lambda: whole(generator, body, choices, model))
        return Response(await server.reader.run(size, written), media_type="application/json")

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        generator = server.open()
        return await answer(request, body, body.n, lambda adapter, guide: generator.chat_choices(body, adapter, guide))

    @app.post("/v1/responses")
    async def respond(body: ResponseRequest, request: Request) -> Response:
        generator, one = server.open(), body.chat
        reply = GrowingResponse(body, body.model or server.settings.model)
        return await answer(request, one, 1, lambda adapter, guide: generator.chat_choices(one, adapter, guide), reply)

    @app.post("/v1/completions")
    async def complete(body: CompletionRequest, request: Request) -> Response:
        generator = server.open()
        return await answer(
            request, body, body.n * len(body.prompts), lambda adapter, _: generator.text_choices(body, adapter)
        )

    @app.post("/tokenize")
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        generator = server.open()
        await server.fetch(body.model)
        server.resolve(body.model)
        content = await server.reader.run(len(await request.body()), lambda: tokenized(generator, body))
        return Response(content, media_type="application/json")


class _Events(StreamingResponse):
    """A stream of server-sent events that ends its completions however the stream itself ends.

    A client that left before the first event would otherwise leave them running: a generator that never started runs no
    `finally`.
    """

    def __init__(self, generator: CompletionHandler, content: AsyncGenerator[bytes, None], ids: list[int]) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._content, self._engine, self._ids = content, generator.engine, ids

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for request_id in self._ids:
                self._engine.abort(request_id)
            await self._content.aclose()


async def unless_left(request: Request, work: Awaitable[T]) -> T:
    """The result of some work, which is cancelled when the client leaves."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ServerError(499, "the client has left")
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
