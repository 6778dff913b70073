"""Running the application under uvicorn, and ending it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    """Ends with exit code 0 after SIGTERM or SIGINT; uvicorn would raise the signal again when it has shut down."""

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
    """A uvicorn server for the application; requests may run for `drain_seconds` after it is told to stop."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="info",
        access_log=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=drain_seconds,
        h11_max_incomplete_event_size=32 << 10,
        server_header=False,
        http="h11",
        ws="none",
    )
    return _Server(config)


def serve(app: Any, host: str, port: int, drain_seconds: int = 30) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    server = make_server(app, host, port, drain_seconds)
    server.run()
    return 0 if server.started else 1
