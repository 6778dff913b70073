"""A small server of pages on this machine only: it reads, answers GET and HEAD, and knows no other host name."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

LOOPBACK = "127.0.0.1"
Query = dict[str, list[str]]


class SiteReply(NamedTuple):
    """What a site says: a text and its media type; `policy` is what else the page may not do."""

    text: str
    kind: str = "text/html"
    status: HTTPStatus = HTTPStatus.OK
    policy: str = ""


Site = Callable[[str, Query], SiteReply | None]
"""The answer for a path and its query, None where there is no such page.

KeyError: the query lacks that name (400); another ValueError: 400 with its message; OSError: 503.
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "legos-view"
    sys_version = ""
    timeout = 30
    disable_nagle_algorithm = True  # else a short body waits 40 ms until its head is acknowledged
    server: LocalServer

    def do_GET(self) -> None:
        self.server.heard(self.connection)
        if (self.headers.get("Host") or "").lower() not in self.server.hosts:
            # another site's name that was pointed at this machine: it must not read the log
            text = "this server answers to its own address only\n"
            return self._send(SiteReply(text, "text/plain", HTTPStatus.MISDIRECTED_REQUEST))
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # else the body would be read as the next request
            return self._send(SiteReply("requests have no body here\n", "text/plain", HTTPStatus.BAD_REQUEST))
        url = urlsplit(self.path)
        try:
            answer = self.server.site(unquote(url.path), parse_qs(url.query))
            self._send(answer or SiteReply("there is no such page\n", "text/plain", HTTPStatus.NOT_FOUND))
        except KeyError as error:
            self._send(SiteReply(f"{url.path} needs {error.args[0]}\n", "text/plain", HTTPStatus.BAD_REQUEST))
        except OSError as error:
            text = f"it cannot be read: {error.strerror}\n"
            self._send(SiteReply(text, "text/plain", HTTPStatus.SERVICE_UNAVAILABLE))
        except ValueError as error:
            self._send(SiteReply(f"{error}\n", "text/plain", HTTPStatus.BAD_REQUEST))

    do_HEAD = do_GET

    def _send(self, answer: SiteReply) -> None:
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", "; ".join(filter(None, ("frame-ancestors 'none'", answer.policy))))
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the page was closed while it was being answered

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks often."""


class LocalServer(ThreadingHTTPServer):
    """A thread for each connection; one too many takes the place of the one that has been silent for longest.

    Bound to 127.0.0.1; call its `serve_forever`, and `shutdown` from another thread. It refuses requests under another
    host name (DNS rebinding), and says the same to everyone who may log in to this machine.

    Args:
        site: what it answers.
        port: 0 for a free one; `server_port` tells which.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 128  # with 5, as it comes, a few silent connections make others wait for seconds
    most = 64

    def __init__(self, site: Site, port: int = 0):
        super().__init__((LOOPBACK, port), _Handler)
        self.site = site
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
        """A browser that goes away in the middle is not news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
