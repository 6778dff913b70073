"""A small read-only page server for this machine: it answers GET and HEAD, under its own host name only."""

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
    """A site's reply: a text and its media type; `policy` adds restrictions for the page."""

    text: str
    kind: str = "text/html"
    status: HTTPStatus = HTTPStatus.OK
    policy: str = ""


SiteHandler = Callable[[str, Query], SiteReply | None]
"""The answer for a path and its query, None if there is no such page.

KeyError: the query lacks that name (400); another ValueError: 400 with its message; OSError: 503.
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "legos-view"
    sys_version = ""
    timeout = 30
    disable_nagle_algorithm = True  # else a short body waits 40 ms for its headers to be acknowledged
    server: LocalServer

    def do_GET(self) -> None:
        self.server.heard(self.connection)
        if (self.headers.get("Host") or "").lower() not in self.server.hosts:
            # another site's name pointed at this machine must not read the log
            text = "this server only answers to its own address\n"
            return self._send(SiteReply(text, "text/plain", HTTPStatus.MISDIRECTED_REQUEST))
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # else the body would be read as the next request
            return self._send(SiteReply("requests must not have a body\n", "text/plain", HTTPStatus.BAD_REQUEST))
        url = urlsplit(self.path)
        try:
            answer = self.server.site(unquote(url.path), parse_qs(url.query))
            self._send(answer or SiteReply("there is no such page\n", "text/plain", HTTPStatus.NOT_FOUND))
        except KeyError as error:
            self._send(SiteReply(f"{url.path} needs {error.args[0]}\n", "text/plain", HTTPStatus.BAD_REQUEST))
        except OSError as error:
            text = f"cannot read it: {error.strerror}\n"
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
        """Logs nothing: pages poll often."""


class LocalServer(ThreadingHTTPServer):
    """A server with a thread per connection; beyond the limit, the longest-idle connection is closed.

    Bound to 127.0.0.1; call its `serve_forever`, and `shutdown` from another thread. It refuses requests under another
    host name (DNS rebinding), and serves every user of this machine.

    Args:
        site: computes the replies.
        port: 0 for a free one, which `server_port` gives.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, a few idle connections make others wait for seconds
    most = 64

    def __init__(self, site: SiteHandler, port: int = 0):
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
                with suppress(OSError):  # it may have just closed
                    silent.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def heard(self, request: socket.socket) -> None:
        """Notes that a connection sent a request."""
        with self._changes:
            if request in self._open:
                self._open[request] = self._open.pop(request)

    def shutdown_request(self, request: Any) -> None:
        with self._changes:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores browsers that disconnect midway; reports anything else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
