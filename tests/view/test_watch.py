"""The page's server: what it answers and to whom. (test_browser.py watches new games appear in an open page.)"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from legos_train.viewer import LogError, serve
from legos_train.viewer.log import LOG
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

        assert news("generation=0&seen=2") == {"rows": [], "bodies": [], "seen": 2}
        append(folder, lines[2])
        added = news("generation=0&seen=2")
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


def test_there_must_be_something_to_watch(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        serve(tmp_path / "none")
