"""Servers for the client's tests: a real one in a thread of this process, and a scripted one that misbehaves."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inference import AsyncEngine, Engine
from inference.server import Settings, create_app
from inference.server.running import make_server


class LiveServer:
    """The server on a loopback port. `kill` cuts every connection, as SIGKILL would; `restart` begins anew there."""

    def __init__(self, model: Path | str, **settings: Any) -> None:
        self.settings = Settings(model=str(model), **settings)
        self.port = 0
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def engine(self) -> Any:
        return self.app.server.engine

    def restart(self, model: Path | str | None = None) -> None:
        if model is not None:
            self.settings = Settings(**{**vars(self.settings), "model": str(model)})
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self.app = create_app(self.settings)
        self._server = make_server(self.app, "127.0.0.1", self.port, drain_seconds=5)
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()
        wait_until(lambda: self.app.server.ready or not self._thread.is_alive())
        assert self._thread.is_alive()

    def _run(self, listener: socket.socket) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[listener])

        with listener:  # uvicorn closes it, but not where it never began to serve
            asyncio.run(serve())

    def kill(self) -> None:
        def cut() -> None:
            for one in self._server.servers:
                one.close()
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            self._server.force_exit = self._server.should_exit = True

        self._loop.call_soon_threadsafe(cut)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.engine.worker.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.should_exit = True
            self._thread.join(20)
            assert not self._thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)


def braked(engine: AsyncEngine) -> threading.Event:
    """Set when the next request has made a few tokens. The engine goes on at the command that comes after them.

    So what a test does next finds the request running, however fast the engine is and however late the test's thread.
    """
    worker, reached, steps = engine.worker, threading.Event(), 0
    held = worker.call(lambda engine: len(engine._tickets)).result(20)
    free = worker._step

    def step(engine: Engine) -> None:
        nonlocal steps
        free(engine)
        steps += len(engine._tickets) > held  # not those of an earlier request
        if steps > 3:
            worker._step = free  # type: ignore[method-assign]
            reached.set()
            end = time.monotonic() + 20
            while worker._commands.empty() and time.monotonic() < end:
                time.sleep(0.001)

    worker._step = step  # type: ignore[method-assign]
    return reached


@contextmanager
def serving(model: Path | str, **settings: Any) -> Iterator[LiveServer]:
    server = LiveServer(model, **settings)
    try:
        yield server
    finally:
        server.stop()


def completion_answer(tokens: list[int], **choice: Any) -> dict[str, Any]:
    """What the server says to a completion."""
    return {
        "choices": [
            {
                "index": 0,
                "finish_reason": "length",
                "text": "",
                "adapter": None,
                "policy_version": 0,
                "token_ids": tokens,
                "prompt_token_ids": [1],
                "token_logprobs": [-1.0] * len(tokens),
                "token_sampled_logprobs": [-1.0] * len(tokens),
                **choice,
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": len(tokens),
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def info_answer(adapters: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """What the server says it serves."""
    facts = {
        "protocol": 1,
        "model": "m",
        "base_digest": "b" * 64,
        "tokenizer_digest": "t" * 64,
        "template_digest": "c" * 64,
        "vocab_size": 300,
        "context": 512,
        "adapters": adapters or {},
    }
    return facts | changed


class Scripted:
    """A transport that answers from a script: (status, headers, body), an exception to raise, or a function."""

    def __init__(self, *script: Any) -> None:
        self.script, self.requests = list(script), []

    async def __call__(self, request: Any) -> Any:
        import httpx2

        await request.aread()
        self.requests.append(request)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if callable(step) and not isinstance(step, type):
            step = step(request)
        if isinstance(step, (type, BaseException)):
            raise step("scripted") if isinstance(step, type) else step
        status, headers, body = step
        return httpx2.Response(status, headers=headers, content=body if isinstance(body, bytes) else json.dumps(body))

    @property
    def transport(self) -> Any:
        import httpx2

        return httpx2.MockTransport(self)
