"""Running the application under uvicorn, and shutting it down.

uvicorn limits neither the time nor the size of a request's head, nor open connections; `_Protocol` does. On SIGTERM
the server answers new requests with 503 while running ones finish, and only then closes: uvicorn alone would refuse
connections at once.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from inference.server.protocol import error_body

MAX_HEAD = 32 << 10  # bytes that may be buffered before a head ends; the guard accepts less
MOST_CONNECTIONS = 8192
BACKLOG = 64  # connections accepted before any silent one is replaced: they must fit in `_OWN_FILES`
_OWN_FILES = 128  # descriptors that the server itself may need


def _most_connections() -> int:
    """As many as the file descriptors allow, minus those that the server itself needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(32, soft - _OWN_FILES))


def _take_descriptors() -> None:
    """Raises the file descriptor limit to the most this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS + _OWN_FILES
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _Protocol.most = _most_connections()


class _State(ServerState):
    """State shared by the connections of one server.

    Attributes:
        silent: open connections without a request, longest silent first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.silent: OrderedDict[_Protocol, None] = OrderedDict()


class _Protocol(H11Protocol):
    """Closes connections that send no request, and answers anything that is not HTTP with an error object.

    A connection is silent while no complete request head has arrived since its last answer. A connection over the limit
    replaces the one that has been silent longest; if all others have a request, the new one is closed. Finding the
    longest silent one takes constant time.
    """

    head_seconds = 10.0
    most = _most_connections()
    server_state: _State
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        self._count()
        if len(self.connections) > self.most:
            next(iter(self.server_state.silent), self)._make_way()

    def _count(self) -> None:
        """Notes activity: moves this connection to the end of the silent ones, or takes it out."""
        silent = self.server_state.silent
        silent.pop(self, None)
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            silent[self] = None

    def _make_way(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()  # nobody reads the rest of its answer
            self._count()
        else:
            self._refuse(503, "too many connections; try again later")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._count()
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self.conn.trailing_data[0]:
            self._expect_head()  # counted from the first byte: more bytes do not buy more time

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.silent.pop(self, None)
        self._stop_waiting()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def send_400_response(self, msg: str) -> None:
        long = len(self.conn.trailing_data[0]) > MAX_HEAD
        status, message = (431, "the request's head is too long") if long else (400, msg)
        self._refuse(status, message)

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, f"no request arrived within {self.head_seconds:g} seconds")

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error_body(message, "invalid_request_error", status)).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            headers |= {"retry-after": "1"} if status == 503 else {}
            for event in (
                h11.Response(status_code=status, headers=list(headers.items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._count()


class _Server(uvicorn.Server):
    """Drains before it closes; exits with code 0 after SIGTERM or SIGINT, which uvicorn would re-raise."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = _State()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        drain = getattr(self.config.app, "drain", None)
        seconds = self.config.timeout_graceful_shutdown or 0
        start = time.monotonic()
        if drain is not None and not self.force_exit:
            await drain(seconds, lambda: self.force_exit)
        self.config.timeout_graceful_shutdown = max(1, int(seconds - (time.monotonic() - start)))
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        failed = getattr(self.config.app, "failed", None)
        return await super().on_tick(counter) or (failed is not None and failed())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: Any, host: str, port: int, drain_seconds: int = 30) -> uvicorn.Server:
    """A uvicorn server for the application; requests may run for another `drain_seconds` after a stop signal."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="info",
        access_log=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=drain_seconds,
        h11_max_incomplete_event_size=MAX_HEAD,
        server_header=False,
        http=_Protocol,
        ws="none",
        backlog=BACKLOG,
    )
    return _Server(config)


def serve(app: Any, host: str, port: int, drain_seconds: int = 30) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    server = make_server(app, host, port, drain_seconds)
    app.has_its_process()
    _take_descriptors()
    server.run()
    return 0 if server.started and not app.failed() else 1
