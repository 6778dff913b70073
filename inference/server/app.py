"""The routes, and how the server starts and stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from inference import adapter_files, loading
from inference.engine import AsyncEngine, Engine
from inference.server.adapter_store import Adapters
from inference.server.bodies import LONG_WORK, SHORT, Reader, problems, route_class
from inference.server.generation import Choice, CompletionHandler, events, tokenized, whole
from inference.server.guard import LOOPBACK, Guard, Limits
from inference.server.metrics import Metrics
from inference.server.protocol import (
    ChatRequest,
    CompletionRequest,
    LoadAdapter,
    ServerError,
    TokenizeRequest,
    UnloadAdapter,
    error_body,
)
from inference.text import PROTOCOL, Conversations, Renderer, template_digest, tokenizer_digest
from inference.types import InferenceError, PublishMode

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What a server is started with.

    Attributes:
        model: as for `Engine.load`.
        adapters: names and directories to publish at the start.
        adapter_root: where clients may load adapters from by path.
        keys: API keys; without any, none is needed.
        hosts: names accepted in `Host`.
        max_queue: most choices waiting or running; more are answered 429.
        patience: seconds that the engine may spend on one step before /health says that it is stuck.
        engine: options of `Engine`.
    """

    model: str = "tiny"
    adapters: dict[str, Path] = field(default_factory=dict)
    adapter_root: Path | None = None
    max_adapters: int = 8
    max_lora_rank: int = 64
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = LOOPBACK
    max_queue: int = 512
    patience: float = 5.0
    limits: Limits = field(default_factory=Limits)
    engine: dict[str, Any] = field(default_factory=dict)


class Server:
    """What the routes share. `ready` once the model is loaded; `draining` from the moment it is asked to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: self.adapters.versions)
        self.reader = Reader()
        self.engine = AsyncEngine(self._make_engine)
        self.adapters = Adapters(
            self.engine,
            self.metrics,
            settings.model,
            settings.adapter_root,
            settings.max_adapters,
            settings.max_lora_rank,
        )
        self.ready = self.draining = False
        self.failure: BaseException | None = None
        self.info: dict[str, Any] = {}
        self._parts: dict[str, Any] = {}
        self.generator: CompletionHandler | None = None
        self.when_ready: Callable[[], None] = lambda: None
        self.gate = asyncio.Event()  # shut while /pause?mode=wait lets finish what runs
        self.gate.set()
        self._coming = 0  # choices that are being tokenised, or wait at the gate

    def _make_engine(self) -> Engine:
        """In the engine's thread: the model, its renderer, and what identifies them."""
        settings = self.settings
        model, tokenizer, info = loading.load(settings.model)
        engine = Engine(
            model,
            tokenizer,
            max_lora_rank=settings.max_lora_rank,
            adapter_slots=settings.max_adapters,
            **settings.engine,
        )
        renderer = Renderer(tokenizer)
        for name, path in settings.adapters.items():
            adapter = adapter_files.read_adapter(path, model, max_rank=settings.max_lora_rank)
            engine.publish(name, adapter.weights, scale=adapter.scale, version=1)
        self._parts = {"tokenizer": tokenizer, "renderer": renderer, "context": engine.context}
        self.info = {
            "protocol": PROTOCOL,
            "model": settings.model,
            "base_digest": info.digest,
            "tokenizer_digest": tokenizer_digest(info.path),
            "template_digest": template_digest(tokenizer),
            "vocab_size": engine.vocab_size,
            "context": engine.context,
            "max_lora_rank": settings.max_lora_rank,
        }
        return engine

    async def start(self) -> None:
        """Load the model in the background; requests are answered 503 until it is there."""
        for name in self.settings.adapters:
            self.adapters.check_name(name)
        self.engine.begin()
        self._loading = asyncio.ensure_future(self._finish_loading())

    async def _finish_loading(self) -> None:
        try:
            await asyncio.wrap_future(self.engine.worker.ready)
        except BaseException as error:
            self.failure = error
            logger.error("the model could not be loaded: %s", error)
            return
        parts = self._parts
        self.generator = CompletionHandler(
            self.engine, Conversations(parts["renderer"]), parts["tokenizer"], parts["context"], self.metrics
        )
        self.adapters.versions.update(dict.fromkeys(self.settings.adapters, 1))
        self.adapters.fixed = frozenset(self.settings.adapters)
        self.metrics.watch("legos_running", "Choices that wait or run", lambda: self.engine.running)
        self.metrics.watch("legos_adapters", "Adapters loaded", lambda: len(self.adapters.versions))
        self.metrics.watch("legos_steps", "Engine steps", lambda: self.engine.worker.steps)
        self.when_ready()
        self.ready = True

    async def drain(self, seconds: float, hurry: Callable[[], bool]) -> None:
        """Refuse new requests and wait for those that run; after `seconds`, or when `hurry` says so, end them."""
        self.draining = True
        self.engine.worker.resume()
        end = time.monotonic() + seconds
        while self._works() and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.05)
        if self._works():
            logger.warning("%d completions are cut off: the time to drain is over", self.engine.running)
            await self.engine.call(lambda engine: engine.abort_all())

    def _works(self) -> bool:
        return self.engine.running > 0 and self.engine.worker.healthy(self.settings.patience)

    async def stop(self) -> None:
        """End the engine."""
        self.draining = True
        self.reader.close()
        await self.engine.close()

    def open(self) -> CompletionHandler:
        """The generator. ServerError 503 while loading, draining or after a failed load."""
        if self.failure is not None:
            raise ServerError(503, "the model could not be loaded; see the server's log", "server_error")
        if not self.ready or self.generator is None or self.draining:
            what = "shutting down" if self.draining else "loading the model"
            raise ServerError(503, f"the server is {what}", "server_error", retry_after=2)
        return self.generator

    async def fetch(self, model: str | None) -> None:
        """Takes an adapter from the root that nobody has loaded yet; what is not there is left to `resolve`."""
        if model is not None and model != self.settings.model and model not in self.adapters.versions:
            await self.adapters.fetch(model)

    def resolve(self, model: str | None) -> str | None:
        """The adapter that a `model` names; None for the base model."""
        if model is None or model == self.settings.model:
            return None
        if model not in self.adapters.versions:
            raise ServerError(404, f"no model {model!r:.100} is served; see /v1/models", "not_found_error")
        self.adapters.use(model)
        return model

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Keeps room for choices until they are handed to the engine.

        Raises:
            ServerError: 429 when the queue has no room for so many now, 400 when it never has.
        """
        if count > self.settings.max_queue:
            raise ServerError(400, f"{count} completions in one request; at most {self.settings.max_queue} are served")
        here = self.engine.running + self._coming
        if here + count > self.settings.max_queue:
            raise ServerError(
                429, f"{here} completions wait or run; try again later", "rate_limit_error", retry_after=1
            )
        self._coming += count
        try:
            yield
        finally:
            self._coming -= count


def create_app(settings: Settings) -> Any:
    """The ASGI application: the routes behind their guard."""
    server = Server(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await server.start()
        yield
        await server.stop()

    app = FastAPI(title="Legos", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.server = server
    app.router.route_class = route_class(server.reader)
    _errors(app)
    _completions(app, server)
    _adapters(app, server)
    _control(app, server)
    return _Counting(Guard(app, settings.hosts, settings.keys, settings.limits), server)


class _Counting:
    """Counts answers by status, the guard's included."""

    def __init__(self, app: Guard, server: Server) -> None:
        self.app, self.metrics, self.server = app, server.metrics, server
        self.drain = server.drain

    def has_its_process(self) -> None:
        """Nothing else runs here: what was made by the time the model is loaded stays, so no collector need look at it.

        A full collection over it takes some hundred milliseconds, in which nobody is answered.
        """
        self.server.when_ready = gc.freeze

    def failed(self) -> bool:
        """Whether loading the model failed, so that there is nothing to serve."""
        return self.server.failure is not None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.metrics.answers.labels(str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, counted)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(ServerError)
    async def refused(request: Request, error: ServerError) -> Response:
        headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else None
        return JSONResponse(error_body(error.message, error.kind, error.status), error.status, headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse(error_body(problems(error.errors(), skip=1), "invalid_request_error", 400), 400)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
        return JSONResponse(error_body(str(error.detail), kind, error.status_code), error.status_code, error.headers)

    @app.exception_handler(InferenceError)
    async def engine_gone(request: Request, error: InferenceError) -> Response:
        return JSONResponse(error_body(str(error)[:300], "server_error", 503), 503, {"Retry-After": "2"})

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        logger.exception("a request failed: %s %.200r", request.method, request.url.path)
        return JSONResponse(error_body("internal error; see the server's log", "server_error", 500), 500)


def _completions(app: FastAPI, server: Server) -> None:
    async def answer(
        request: Request, body: ChatRequest | CompletionRequest, count: int, make: Callable[[str | None], list[Choice]]
    ) -> Response:
        generator, model = server.open(), body.model or server.settings.model
        await server.fetch(body.model)
        size = len(await request.body())
        if isinstance(body, ChatRequest) and generator.is_new(body):
            size = LONG_WORK

        async def prepared() -> list[Choice]:
            choices = await server.reader.run(size, lambda: make(server.resolve(body.model)))
            await server.gate.wait()
            return choices

        with server.room(count):
            at_once = size <= SHORT and server.gate.is_set()
            choices = make(server.resolve(body.model)) if at_once else await _unless_left(request, prepared())
        ids = await generator.submit(choices)
        if body.stream:
            return _Events(generator, events(generator, body, ids, choices, model), ids)
        await _unless_left(request, generator.finish(ids, choices))
        numbers = sum(choice.numbers(body.return_token_ids) for choice in choices)
        content = await server.reader.run(numbers, lambda: whole(generator, body, choices, model))
        return Response(content, media_type="application/json")

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        generator = server.open()
        return await answer(request, body, body.n, lambda adapter: generator.chat_choices(body, adapter))

    @app.post("/v1/completions")
    async def complete(body: CompletionRequest, request: Request) -> Response:
        generator = server.open()
        several = isinstance(body.prompt, list) and not isinstance(body.prompt[0], int)
        count = body.n * (len(body.prompt) if several else 1)
        return await answer(request, body, count, lambda adapter: generator.text_choices(body, adapter))

    @app.post("/tokenize")
    async def tokenize(body: TokenizeRequest, request: Request) -> Response:
        generator = server.open()
        await server.fetch(body.model)
        server.resolve(body.model)
        content = await server.reader.run(len(await request.body()), lambda: tokenized(generator, body))
        return Response(content, media_type="application/json")


class _Events(StreamingResponse):
    """A stream of server-sent events that ends its completions, however it ends itself.

    A client that is gone before the first event would otherwise leave them running: a generator that was never started
    has no `finally`.
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


async def _unless_left(request: Request, work: Awaitable[T]) -> T:
    """The result of some work; when the client leaves, the work is cancelled."""
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


def _adapters(app: FastAPI, server: Server) -> None:
    adapters = server.adapters

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        server.open()
        base = {"id": server.settings.model, "object": "model", "owned_by": "legos", "created": 0}
        rest = [
            {**base, "id": name, "parent": server.settings.model, "policy_version": version}
            for name, version in sorted(adapters.versions.items())
        ]
        return {"object": "list", "data": [base, *rest]}

    @app.post("/v1/load_lora_adapter")
    async def load(body: LoadAdapter) -> dict[str, Any]:
        server.open()
        if body.lora_name in adapters.versions and not body.load_inplace:
            raise ServerError(400, f"adapter {body.lora_name!r} is loaded already; load_inplace replaces it")
        return await adapters.load(body.lora_name, body.lora_path, body.version, body.mode)

    @app.post("/v1/unload_lora_adapter")
    async def unload(body: UnloadAdapter) -> dict[str, Any]:
        server.open()
        await adapters.unload(body.lora_name, for_good=False)
        return {"adapter": body.lora_name, "unloaded": True}

    @app.put("/v1/adapters/{name}")
    async def put(
        name: str,
        request: Request,
        version: int | None = Query(None, ge=0, lt=1 << 62),
        scale: float | None = Query(None, gt=-1e6, lt=1e6),
        mode: PublishMode = "pin",
    ) -> dict[str, Any]:
        server.open()
        digest = request.headers.get("x-content-sha256")
        return await adapters.put(name, await request.body(), digest, scale, version, mode)

    @app.delete("/v1/adapters/{name}")
    async def delete(name: str) -> dict[str, Any]:
        server.open()
        await adapters.unload(name)
        return {"adapter": name, "unloaded": True}

    @app.get("/v1/legos/info")
    async def info() -> dict[str, Any]:
        server.open()
        published = await server.engine.call(lambda engine: engine.adapters())
        adapter_infos = {
            name: {"version": one.version, "digest": one.digest, "rank": one.rank, "running": one.running}
            for name, one in published.items()
        }
        return {**server.info, "adapters": adapter_infos}


def _control(app: FastAPI, server: Server) -> None:
    worker, patience = server.engine.worker, server.settings.patience

    @app.get("/health")
    async def health() -> Response:
        good = server.failure is None and (not server.ready or worker.healthy(patience))
        return JSONResponse({"status": "ok" if good else "stuck"}, 200 if good else 503)

    @app.get("/ready")
    async def ready() -> Response:
        good = server.ready and not server.draining and worker.healthy(patience)
        return JSONResponse({"ready": good}, 200 if good else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.post("/pause")
    async def pause(mode: Literal["abort", "wait", "keep"] = "abort") -> dict[str, Any]:
        """keep: freeze everything until /resume; wait: let running requests finish first; abort: end them."""
        server.open()
        if mode == "wait":
            server.gate.clear()
        try:
            while mode == "wait" and not worker.paused and await server.engine.call(lambda engine: engine.busy):
                await asyncio.sleep(0.01)
            await server.engine.call(lambda engine: worker.pause(engine, abort=mode == "abort"))
        finally:
            server.gate.set()
        return {"paused": True, "mode": mode}

    @app.post("/resume")
    async def resume() -> dict[str, Any]:
        server.open()
        await server.engine.call(lambda engine: worker.resume())
        return {"paused": False}

    @app.get("/is_paused")
    async def is_paused() -> dict[str, Any]:
        return {"is_paused": worker.paused}
