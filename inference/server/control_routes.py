"""Routes for operators: health, metrics, pausing."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from inference.server.completion_routes import unless_left
from inference.server.server import Server


def add(app: FastAPI, server: Server) -> None:
    """Adds the routes to the application."""
    worker, stuck_after = server.engine.worker, server.settings.stuck_after
    resumed = 0  # times

    @app.get("/health")
    async def health() -> Response:
        good = server.failure is None and (not server.ready or worker.healthy(stuck_after))
        found: dict[str, Any] = {"status": "ok" if good else "stuck", "path": worker.path}
        found |= {"lookahead": worker.lookahead, "threads": server.threads}
        return JSONResponse(found, 200 if good else 503)

    @app.get("/ready")
    async def ready() -> Response:
        good = server.ready and not server.draining and worker.healthy(stuck_after)
        return JSONResponse({"ready": good}, 200 if good else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    async def idle(before: int) -> None:
        """Waits until nothing runs, or somebody resumes or pauses."""
        while resumed == before and not worker.paused and await server.engine.call(lambda engine: engine.busy):
            await asyncio.sleep(0.01)

    @app.post("/pause")
    async def pause(request: Request, mode: Literal["abort", "wait", "keep"] = "abort") -> dict[str, Any]:
        """keep: freeze everything until /resume; wait: let running requests finish first; abort: end them.

        A server that shuts down while a pause waits is no longer paused: it has to finish the requests it accepted. A
        pause is withdrawn if its client leaves while it waits.
        """
        server.open()
        before = resumed
        if mode == "wait":
            server.gate.clear()
        try:
            if mode == "wait":
                await unless_left(request, idle(before))
            server.open()
            if resumed != before:
                return {"paused": False, "mode": mode}
            await server.engine.call(lambda engine: worker.pause(engine, abort=mode == "abort"))
        finally:
            server.gate.set()
        return {"paused": True, "mode": mode}

    @app.post("/resume")
    async def resume() -> dict[str, Any]:
        """Ends a pause, also one that still waits for running requests."""
        nonlocal resumed
        server.open()
        resumed += 1
        await server.engine.call(lambda engine: worker.resume())
        return {"paused": False}

    @app.get("/is_paused")
    async def is_paused() -> dict[str, Any]:
        return {"is_paused": worker.paused}
