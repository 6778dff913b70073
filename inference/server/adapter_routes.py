"""Routes that list the served models and publish adapters: vLLM's by path, our own by bytes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Query, Request

from inference.server.protocol import LoadAdapter, ServerError, UnloadAdapter
from inference.server.server import Server
from inference.types import PublishMode


def add(app: FastAPI, server: Server) -> None:
    """Adds the routes to the application."""
    adapters = server.adapters

    def served() -> dict[str, dict[str, Any]]:
        base = {"id": server.settings.model, "object": "model", "owned_by": "legos", "created": 0}
        return {server.settings.model: base} | {
            name: {**base, "id": name, "parent": server.settings.model, "policy_version": version}
            for name, version in sorted(adapters.versions.items())
        }

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        server.open()
        return {"object": "list", "data": list(served().values())}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        server.open()
        if name not in served():
            raise ServerError(404, f"no model {name!r:.80} is served; see /v1/models", "not_found_error")
        return served()[name]

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
