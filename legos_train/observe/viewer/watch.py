"""The page while the run goes on: a small server on this machine only that hands out new lines of the log."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from legos_train.observe.viewer.compact import Json
from legos_train.observe.viewer.log import read_extras
from legos_train.observe.viewer.viewer_page import add_lines, as_json, build, gather, steps_of

LOOPBACK = "127.0.0.1"


class Feed:
    """All rows and bodies so far; `refresh` reads what was added. Safe to call from several threads."""

    def __init__(self, folders: Sequence[Path], newest: int | None, every: float = 2.0):
        self.folders, self.newest, self.every = list(folders), newest, every
        self.lock = threading.Lock()
        self.generation = 0
        self._load()

    def _load(self) -> None:
        self.header, self.bodies, self.readers = gather(self.folders, self.newest)
        self._generations = [reader.generation for reader in self.readers]

    def refresh(self) -> None:
        """Reads on. Where a log was replaced everything is read again, and pages of before are told to reload.

        Raises:
            LogError, OSError: a log is gone or empty now.
        """
        with self.lock:
            for run, reader in enumerate(self.readers):
                lines = reader.read()
                if reader.generation != self._generations[run]:
                    self.generation += 1
                    self._load()
                    return
                add_lines(lines, run, reader, self.header["rows"], self.bodies)
                if lines:
                    _, metrics = read_extras(self.folders[run], steps_of(lines))
                    self.header["runs"][run]["metrics"] |= metrics

    def page(self) -> str:
        with self.lock:
            live = {"generation": self.generation, "seen": len(self.bodies), "every": self.every}
            return build(self.header | {"live": live}, self.bodies)

    def since(self, generation: int, seen: int) -> Json:
        """Rows and bodies after the first `seen`, or `reload` where these are no longer what the page has."""
        with self.lock:
            if generation != self.generation or not 0 <= seen <= len(self.bodies):
                return {"reload": True}
            bodies, rows = [json.loads(text) for text in self.bodies[seen:]], self.header["rows"][seen:]
            metrics: list[Json] = [{} for _ in self.folders]
            for row in rows:
                known, step = self.header["runs"][row["run"]]["metrics"], str(row["step"])
                metrics[row["run"]] |= {step: known[step]} if step in known else {}
            return {"rows": rows, "bodies": bodies, "metrics": metrics, "seen": len(self.bodies)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "legos-view"
    sys_version = ""
    timeout = 30
    server: _Server

    def do_GET(self) -> None:
        self.server.heard(self.connection)
        if (self.headers.get("Host") or "").lower() not in self.server.hosts:
            # another site's name that was pointed at this machine: it must not read the log
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to its own address only\n", "text/plain")
            return
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # else the body would be read as the next request
            self._send(HTTPStatus.BAD_REQUEST, "requests have no body here\n", "text/plain")
            return
        url = urlsplit(self.path)
        try:
            if url.path == "/":
                self.server.feed.refresh()
                self._send(HTTPStatus.OK, self.server.feed.page(), "text/html")
            elif url.path == "/lines":
                query = {name: int(values[-1]) for name, values in parse_qs(url.query).items()}
                self.server.feed.refresh()
                answer = self.server.feed.since(query["generation"], query["seen"])
                self._send(HTTPStatus.OK, as_json(answer), "application/json")
            else:
                self._send(HTTPStatus.NOT_FOUND, "there is / and /lines\n", "text/plain")
        except KeyError as error:
            self._send(HTTPStatus.BAD_REQUEST, f"/lines needs {error.args[0]}\n", "text/plain")
        except OSError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"the log cannot be read: {error.strerror}\n", "text/plain")
        except ValueError as error:
            self._send(HTTPStatus.BAD_REQUEST, f"{error}\n", "text/plain")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the page was closed while it was being answered

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks often."""


class _Server(ThreadingHTTPServer):
    """A thread for each connection; one too many takes the place of the one that has been silent for longest."""

    daemon_threads = True
    request_queue_size = 128  # with 5, as it comes, a few silent connections make others wait for seconds
    most = 64

    def __init__(self, feed: Feed, port: int):
        super().__init__((LOOPBACK, port), _Handler)
        self.feed = feed
        self._open: dict[socket.socket, None] = {}
        self._changes = threading.Lock()
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        if self.server_port == 80:
            self.hosts |= {LOOPBACK, "localhost"}

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changes:
            if len(self._open) >= self.most:
                silent = next(iter(self._open))
                del self._open[silent]
                with suppress(OSError):  # it has just closed by itself
                    silent.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def heard(self, request: socket.socket) -> None:
        """A connection has asked for something."""
        with self._changes:
            if request in self._open:
                self._open[request] = self._open.pop(request)

    def shutdown_request(self, request: Any) -> None:
        with self._changes:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(
    folders: Path | Sequence[Path], port: int = 0, newest: int | None = 5000, *, every: float = 2.0
) -> ThreadingHTTPServer:
    """A server of the page, bound to 127.0.0.1; call its `serve_forever`, and `shutdown` from another thread.

    It only reads, answers GET and HEAD, refuses requests under another host name (DNS rebinding), and says the same to
    everyone who may log in to this machine: what a run plays is no secret there.

    Args:
        folders: runs or evaluations to show.
        port: 0 for a free one; `server_port` tells which.
        newest: as in `write_page`.
        every: seconds between two questions of an open page; ten where it is not in sight.

    Raises:
        LogError: nothing to look at in a folder.
        OSError: the port is taken.
    """
    return _Server(Feed([folders] if isinstance(folders, str | Path) else folders, newest, every), port)
