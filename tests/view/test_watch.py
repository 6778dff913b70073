"""The page's server: what it answers and to whom. (test_browser.py watches new games appear in an open page.)"""

from __future__ import annotations

import http.client
import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.viewer import LOG, serve
from legos_train.observe.viewer.log import LogError
from legos_train.run.live_viewer import LiveViewer
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

        assert news("generation=0&seen=2") == {"rows": [], "bodies": [], "metrics": [{}], "seen": 2}
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


def test_a_port_that_is_taken_ends_no_run(
    tmp_path: Path, lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_log(tmp_path, lines[:1])
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(folder), "--watch", "--no-open", "--port", str(port)]) == 1
        assert f"port {port} is taken" in capsys.readouterr().err
        with LiveViewer(folder, port) as watch:
            watch.begin(said.append)
            watch.begin(said.append)
    assert len(said) == 1 and f"cannot be watched on port {port}" in said[0]


def test_there_must_be_something_to_watch(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        serve(tmp_path / "none")
