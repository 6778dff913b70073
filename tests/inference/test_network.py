"""Clients behind a proxy, and servers with certificates of an authority of one's own."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest

from inference import HttpClient, Request, SamplingParams, ServerUnavailable
from inference.client.retry import Retry
from inference.network import ProxyError, proxy_for, transport
from legos_envs import Decision
from legos_train.cli.main import main
from legos_train.rollout.players.endpoint import EndpointPlayer, reach

KEY = "a-key-of-the-tests-0123"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://api.test/v1", {}, None),
        ("https://api.test/v1", {"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://api.test/v1", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("https://api.test/v1", {"ALL_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://api.test/v1", {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("https://api.test/v1", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".test"}, None),
        ("https://api.test/v1", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, None),
        ("https://api.test/v1", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other,api.test:443"}, None),
        ("https://api.test:8443/v1", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api.test:8443"}, None),
        ("https://api.test:8444/v1", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api.test:8443"}, "http://p"),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a.test, 10.0.0.0/8"}, None),
        ("https://11.1.2.3", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a.test, 10.0.0.0/8"}, "http://p"),
        ("https://[fd00::1]:8443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "[fd00::1]"}, None),
        ("HTTPS://API.test/v1", {"HTTPS_PROXY": "http://p"}, "http://p"),
        ("http://node7:8000", {"HTTP_PROXY": "http://proxy:3128", "ALL_PROXY": "http://proxy:3128"}, None),
        ("https://127.0.0.1:8000", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://[::1]:8000", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://localhost:8000", {"HTTPS_PROXY": "http://proxy:3128"}, None),
    ],
)
def test_only_https_to_other_machines_takes_the_proxy_of_the_environment(monkeypatch, url, environment, proxy) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


def test_a_proxy_of_an_unsupported_kind_is_an_error_without_its_password(monkeypatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:hunter2@proxy:1080")
    for make in (lambda: HttpClient("https://api.test"), lambda: EndpointPlayer("https://api.test/v1#m")):
        with pytest.raises(ValueError, match=r"speaks socks5; accepted are .*NO_PROXY=api\.test") as caught:
            make()
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy", ["http://p:abc", "http://", "http://u:hunter2#x@p:3128", "http://u:hunter2/x@p:3128", "http://p:0"]
)
def test_what_is_no_address_of_a_proxy_is_an_error_that_does_not_repeat_it(monkeypatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ProxyError, match=r"not the address of one\. Set HTTPS_PROXY to http://HOST:PORT") as caught:
        proxy_for("https://api.test/v1")
    assert "hunter2" not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize(
    "command",
    [
        "train --env Nim-v0 --steps 1 --server https://api.test --run-dir run",
        "eval Nim-v0 -m https://api.test/v1#m -n 1",
    ],
)
def test_commands_say_that_a_proxy_cannot_be_used(monkeypatch, tmp_path, capsys, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    for proxy, why in (("socks5://p:1", "speaks socks5"), ("http://p:abc", "not the address")):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        assert main(command.split()) != 0
        said = capsys.readouterr().err
        assert why in said and "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_certificates_are_checked_however_the_address_is_written(monkeypatch) -> None:
    verified = []
    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda verify, **_: verified.append(verify))
    for url in ("https://api.test", "HTTPS://api.test", "http://api.test"):
        transport(url, httpx2.Limits())
    assert verified[:2] == [True, True] and isinstance(verified[2], ssl.SSLContext)


class Proxy:
    """Tunnels every connection to `port`, or refuses with 407; `asked` holds what it was sent in the clear."""

    def __init__(self, port: int | None) -> None:
        self.asked: list[str] = []
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._tunnel, args=(self._listening.accept()[0],), daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        with client:
            head = b""
            while not head.endswith(b"\r\n\r\n") and (part := client.recv(4096)):
                head += part
            if not head:
                return
            self.asked.append(head.decode())
            if self._port is None:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server)
                back.join()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # on Linux this wakes `accept`
        self._listening.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy_to(port: int | None) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def decision() -> Decision:
    return Decision("a", "a", {"messages": ({"role": "user", "content": "Move?"},)}, {}, 0, 1)


def ask(endpoint: EndpointPlayer) -> str:
    async def one() -> str:
        return await endpoint(decision())

    try:
        return asyncio.run(one())
    finally:
        endpoint.close()


def test_a_proxy_that_refuses_is_named_and_sees_no_key(monkeypatch) -> None:
    monkeypatch.setenv("LEGOS_API_KEY", KEY)
    with proxy_to(None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        reach("https://api.test:8443/v1#m")
        once = Retry(attempts=1)
        with pytest.raises(ServerUnavailable, match=r"407.*through the proxy that the environment names"):
            ask(EndpointPlayer("https://api.test:8443/v1#m", retry=once))

        async def complete() -> None:
            client = HttpClient("https://api.test:8443", KEY, retry=once)
            try:
                await client.complete(Request((1,), SamplingParams()))
            finally:
                await client.close()

        with pytest.raises(ServerUnavailable, match="407"):
            asyncio.run(complete())
    assert len(proxy.asked) == 2
    assert all(head.startswith("CONNECT api.test:8443 HTTP/1.1") and KEY not in head for head in proxy.asked)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{nobody.getsockname()[1]}")
    with pytest.raises(ServerUnavailable, match=r"the proxy of the environment, 127\.0\.0\.1:\d+.*HTTPS_PROXY"):
        reach("https://api.test:8443/v1#m")


class Answers(BaseHTTPRequestHandler):
    """Answers every chat with `[take]`."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        reply = {"choices": [{"message": {"role": "assistant", "content": "[take]"}, "finish_reason": "stop"}]}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_tls_through_a_proxy_with_an_authority_of_ones_own(monkeypatch, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    name = ("-subj", "/CN=api.test", "-addext", "subjectAltName=DNS:api.test")
    files = ("-keyout", key, "-out", certificate)
    subprocess.run([openssl, "req", *kind, *name, *files], check=True, capture_output=True)
    server = HTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        with proxy_to(server.server_port) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with pytest.raises(ServerUnavailable, match=r"(?i)certificate"):
                ask(EndpointPlayer("https://api.test/v1#m", retry=Retry(attempts=1)))
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert ask(EndpointPlayer("https://api.test/v1#m")) == "[take]"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
