"""The ASGI application: the routes behind their guard, and errors in OpenAI's format."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from inference.server import adapter_routes, completion_routes, control_routes
from inference.server.bodies import route_class
from inference.server.guard import Guard
from inference.server.protocol import ServerError, error_body
from inference.server.server import Server
from inference.server.settings import Settings
from inference.server.wording import problems
from inference.types import InferenceError

logger = logging.getLogger(__name__)


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
    completion_routes.add(app, server)
    adapter_routes.add(app, server)
    control_routes.add(app, server)
    return _Counting(Guard(app, settings.hosts, settings.keys, settings.limits), server)


class _Counting:
    """Counts answers by status, including the guard's."""

    def __init__(self, app: Guard, server: Server) -> None:
        self.app, self.metrics, self.server = app, server.metrics, server
        self.drain = server.drain

    def has_its_process(self) -> None:
        """Calls this if nothing else runs in this process: objects alive after loading stay, so the collector can skip
        them.

        A full collection over them takes a few hundred milliseconds, in which no request is answered. One runs before
        freezing, so that no garbage is frozen, and one after: CPython starts one by itself only when new objects number
        a quarter of those that the last one left, and that count must not include the frozen ones.
        """
        self.server.when_ready = _set_aside

    def failed(self) -> bool:
        """Whether loading the model failed, which leaves nothing to serve."""
        return self.server.failure is not None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.metrics.answers.labels(str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, counted)


def _set_aside() -> None:
    gc.collect()
    gc.freeze()
    gc.collect()


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
