"""The page's server: what it answers and to whom. (test_browser.py watches new games appear in an open page.)"""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutations import Shape, mutate
from legos_train.cli.main import main
from legos_train.observe.local_server import LocalServer
from legos_train.observe.viewer import LOG, serve
from legos_train.observe.viewer.log import LogError
from legos_train.run.steps import LiveViewer
from tests.view.made import append, serving, some_lines, write_log


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return some_lines(6, ("KuhnPoker-v0", "TicTacToe-v0"))


def ask(port: int, path: str, host: str | None = None, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_it_answers_its_own_address_only(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    with serving(write_log(tmp_path, lines[:2])) as port:
        status, headers, text = ask(port, "/")
        assert status == 200 and text.startswith("<!doctype html>") and "connect-src 'self'" in text
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert ask(port, "/", f"LOCALHOST:{port}")[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"[::1]:{port}"):
            status, _, text = ask(port, "/lines?generation=0&seen=0", host)
            assert status == 421 and "rows" not in text
        status, headers, text = ask(port, "/", method="HEAD")
        assert status == 200 and int(headers["Content-Length"]) > 1000 and text == ""
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(port, "/", method=method)[0] == 501


def test_it_hands_out_what_is_new(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    folder = write_log(tmp_path, lines[:2])
    with serving(folder) as port:

        def news(query: str) -> dict[str, Any]:
            status, _, text = ask(port, f"/lines?{query}")
            assert status == 200 and "<" not in text
            found: dict[str, Any] = json.loads(text)
            return found

        assert news("generation=0&seen=2") == {**{"rows": [], "bodies": [], "metrics": [{}], "seen": 2, "played": [0]}}
        step = lines[2]["step"]
        (folder / "metrics.jsonl").write_text(json.dumps({"step": step, "loss": 0.5}) + '\n{"step": 99, "loss"')
        append(folder, lines[2])
        added = news("generation=0&seen=2")
        assert added["metrics"] == [{str(step): {"step": step, "loss": 0.5}}]
        assert added["seen"] == 3 and [row["n"] for row in added["rows"]] == [3] and len(added["bodies"]) == 1
        assert news("generation=0&seen=7") == news("generation=4&seen=2") == {"reload": True}
        write_log(folder, lines[3:4])
        assert news("generation=0&seen=3") == {"reload": True}
        assert news("generation=1&seen=0")["seen"] == 1
        for wrong in ("/lines", "/lines?generation=0", "/lines?generation=x&seen=0"):
            assert ask(port, wrong)[0] == 400
        for missing in ("/view.html", "/../config.toml", "/rollouts.jsonl", "/favicon.ico"):
            assert ask(port, missing)[0] == 404
        (folder / LOG).unlink()
        assert ask(port, "/lines?generation=1&seen=0")[0] == 503
        write_log(folder, [])
        assert ask(port, "/")[0] == 400


def test_a_browser_that_goes_away_is_no_news(
    tmp_path: Path, lines: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(write_log(tmp_path, lines[:1])) as port:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as browser:
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye
                browser.sendall(b"GET / HT")
        assert ask(port, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    """Each is a thread: their number is bounded, and the one that was silent for longest makes way."""
    with serving(write_log(tmp_path, lines[:1])) as port:
        before = threading.active_count()
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
        for one in silent[::2]:
            one.sendall(b"GET / HTTP/1.1\r\nX-A: ")
        for _ in range(3):
            page.request("GET", "/lines?generation=0&seen=1")
            assert page.getresponse().read()
            silent.append(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, "/")[0] == 200
        assert threading.active_count() - before <= LocalServer.most + 2
        for one in silent:
            one.close()
        page.close()


def test_no_request_hides_in_another(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    hidden = b"GET /lines?generation=0&seen=0 HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"
    with serving(write_log(tmp_path, lines[:1])) as port:
        for field in (b"Content-Length: 200", b"Content-Length: 0\r\nContent-Length: 9", b"Transfer-Encoding: chunked"):
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                head = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n%s\r\n\r\n" % (port, field)
                client.sendall(head + hidden % port)
                answer = b""
                with suppress(ConnectionResetError):
                    while part := client.recv(1 << 16):
                        answer += part
            assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1 and b"rows" not in answer


def test_mutated_requests_are_answered(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    """As the model server: no 5xx but 501 for a method it does not have, and it answers the next one."""
    shapes = [Shape("GET", path) for path in ("/", "/lines?generation=0&seen=0")]
    with serving(write_log(tmp_path, lines[:1])) as port:
        seen = set()
        for number in range(150):
            draw = random.Random(number)
            data = mutate(draw.choice(shapes), draw, shapes).replace(b"127.0.0.1", b"127.0.0.1:%d" % port, 1)
            with socket.create_connection(("127.0.0.1", port), 10) as client, suppress(ConnectionResetError):
                client.sendall(data.replace(b"Content-Length: 0\r\n", b"", 1))
                client.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
                seen.add(answer.split()[1] if answer.startswith(b"HTTP/1.1 ") else b"")
        assert (
            {b"200", b"400", b"404", b"421"}
            <= seen
            <= {b"", b"100", b"200", b"400", b"404", b"414", b"421", b"431", b"501", b"505"}
        )
        assert ask(port, "/")[0] == 200


def test_a_port_that_is_taken_ends_no_run(
    tmp_path: Path, lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_log(tmp_path, lines[:1])
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(folder), "--no-open", "--port", str(port)]) == 1
        assert f"port {port} is taken" in capsys.readouterr().err
        with LiveViewer(folder, port) as watch:
            watch.begin(said.append)
            watch.begin(said.append)
    assert len(said) == 1 and f"cannot be watched on port {port}" in said[0]


def test_there_must_be_something_to_watch(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        serve(tmp_path / "none")
