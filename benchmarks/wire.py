"""A real server on loopback, and a minimal client: for storms and for the server's tests.

`Live` runs the application under uvicorn in a thread of this process, so that its state can be inspected; `call` sends
one request from a coroutine; `Connection` is a socket that can stop in the middle of anything.
"""

from __future__ import annotations

import asyncio
import faulthandler
import http.client
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from inference.server import Settings, create_app
from inference.server.running import make_server


class Reply(NamedTuple):
    """An answer: status, headers with lower-case names, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. ValueError for anything else, NaN and Infinity included."""
        return json.loads(self.body, parse_constant=_refuse)

    def events(self) -> list[Any]:
        """The data of server-sent events, without [DONE]."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line, parse_constant=_refuse) for line in lines if line != "[DONE]"]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class Live:
    """A server in a thread. `core` is its `Server`, `loop` its event loop."""

    def __init__(self, settings: Settings, *, wait: bool = True, drain_seconds: int = 5) -> None:
        self.app = create_app(settings)
        self.core: Any = self.app.server
        self.uvicorn = make_server(self.app, "127.0.0.1", 0, drain_seconds)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="server", daemon=True)
        self._thread.start()
        self.until(lambda: self.uvicorn.started or not self._thread.is_alive())
        sockets = self.uvicorn.servers[0].sockets  # none any more when the model could not be loaded
        self.port: int = sockets[0].getsockname()[1] if sockets else 0
        if wait:
            self.until(lambda: self.core.ready or self.core.failure is not None)
            if self.core.failure is not None:
                self.stop()
                raise self.core.failure

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.uvicorn.serve()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> Reply:
        """One request over a connection of its own. `body`: bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        given = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given = {"Content-Type": "application/json"} | given
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def run(self, work: Awaitable[Any], timeout: float = 30.0) -> Any:
        """The result of a coroutine in the server's loop."""

        async def wrapped() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(timeout)

    def holds(self) -> dict[str, int]:
        """What is in use: requests, rows, pins of adapters, listeners, KV bytes, asyncio tasks, descriptors."""

        def inside(engine: Any) -> dict[str, int]:
            kv, prefixes = engine._stepper.kv, engine._runner.prefixes
            return {
                "requests": len(engine._tickets),
                "rows": len(engine._scheduler.rows),
                "pins": sum(one.running for one in engine.adapters().values()),
                "kv_bytes": kv.nbytes + prefixes.nbytes,
            }

        async def look() -> dict[str, int]:
            found: dict[str, int] = await self.core.engine.call(inside)
            engine = self.core.engine
            found["listeners"] = len(engine._listeners) + len(engine._ended)
            return found | {"tasks": len(asyncio.all_tasks()) - 1}

        return self.run(look()) | {"descriptors": len(os.listdir("/proc/self/fd"))}

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something. TimeoutError when it does not come."""
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(f"it did not happen within {seconds:g} seconds")
            time.sleep(0.01)

    def stop(self) -> None:
        """As SIGTERM does."""
        self.uvicorn.should_exit = True
        self._thread.join(60)
        if self._thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__)  # says where every thread is
            raise TimeoutError("the server did not end within a minute")


class Connection:
    """A TCP connection whose both ends of talk are in the caller's hands."""

    def __init__(self, port: int, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)

    def send(self, data: bytes) -> Connection:
        """Send bytes as they are."""
        self.socket.sendall(data)
        return self

    def rest(self) -> bytes:
        """Everything until the server closes. TimeoutError when it neither speaks nor closes for too long."""
        parts = []
        with self.socket:
            try:
                while part := self.socket.recv(1 << 16):
                    parts.append(part)
            except ConnectionResetError:
                return b"".join(parts)  # as good as closed: what was refused may not have been read to its end
        return b"".join(parts)

    def status(self) -> int:
        """The status of the answer that ends with the connection; 0 when it was closed without a word."""
        head = self.rest().partition(b"\r\n")[0].split()
        return int(head[1]) if len(head) > 1 else 0

    def reset(self) -> None:
        """Go away by RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        """Go away by FIN."""
        self.socket.close()


def head(method: str, path: str, **headers: Any) -> bytes:
    """A request's head; underscores in names are hyphens."""
    fields = {"Host": "127.0.0.1", "Connection": "close"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]).encode()


def post(path: str, body: Any, **headers: Any) -> bytes:
    """A whole POST request with a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", path, Content_Type="application/json", Content_Length=len(data), **headers) + data


async def call(port: int, method: str, path: str, body: bytes = b"", timeout: float = 60.0, **headers: Any) -> Reply:
    """One request, HTTP/1.0 so that the answer ends with the connection. TimeoutError, ConnectionError."""

    async def talk() -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            kind = {"Content_Type": "application/json"} if body else {}
            start = head(method, path, Content_Length=len(body), **(kind | headers))
            writer.write(start.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1) + body)
            await writer.drain()
            top, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
        line, *fields = top.decode("latin-1").split("\r\n")
        if not line:
            raise ConnectionError("closed without an answer")
        pairs = (field.partition(":") for field in fields)
        return Reply(int(line.split()[1]), {k.lower(): v.strip() for k, _, v in pairs}, rest)

    return await asyncio.wait_for(talk(), timeout)
