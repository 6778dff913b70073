"""Two `legos serve` behind vLLM's router: `uv run --group router pytest -n 0 -m slow tests/interop/test_router.py`.

The router hashes `X-Session-ID`, reads every request by its own schema and writes it anew with all defaults.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legos_train import Trainer
from legos_train.run import build
from tests.inference.live import LiveServer
from tests.train.helpers import small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm_router") is None, reason="no vLLM router: uv run --group router pytest ..."
    ),
]
START_SECONDS = 120.0


class Routed:
    """A router in front of two servers that take adapters from one folder."""

    def __init__(self, folder: Path) -> None:
        self.shelf = folder / "adapters"
        self.shelf.mkdir()
        self.servers = [LiveServer("tiny", adapter_root=self.shelf) for _ in range(2)]
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            self.port, metrics = one.getsockname()[1], two.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        urls = [server.url for server in self.servers]
        ports = ["--port", str(self.port), "--prometheus-port", str(metrics)]
        command = [sys.executable, "-m", "vllm_router.launch_router", "--policy", "consistent_hash", *ports]
        self.log = folder / "router.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen([*command, "--worker-urls", *urls], stdout=out, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Until it answers. RuntimeError with the end of its log when it does not."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError(f"the router does not answer; its log ends with {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for server in self.servers:
            server.stop()

    def answered(self) -> list[int]:
        """How many completions each server has made."""
        counts = []
        for server in self.servers:
            with urllib.request.urlopen(server.url + "/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            counts.append(sum(int(float(x.split()[-1])) for x in lines if x.startswith("legos_completions_total")))
        return counts


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    one = Routed(tmp_path_factory.mktemp("routed"))
    try:
        one.wait()
        yield one
    finally:
        one.stop()


def ask(url: str, path: str, body: dict[str, Any], session: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-Session-ID": session}
    asked = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def test_what_a_router_writes_out_is_accepted(routed: Routed) -> None:
    """Completions and chat give through the router what a server gives that is asked at once."""
    ids = {"model": "tiny", "prompt": [[5, 6, 7], [9, 8]], "seeds": [3, 2**63 + 1], "max_tokens": 6}
    talk = {"model": "tiny", "messages": [{"role": "user", "content": "[bet] or [check]?"}], "max_tokens": 6, "seed": 4}
    for path, body in (("/v1/completions", ids), ("/v1/chat/completions", talk)):
        asked = {**body, "return_token_ids": True}
        there = [ask(url, path, asked, "one")["choices"] for url in (routed.url, routed.servers[0].url)]
        assert [[c["token_ids"] for c in choices] for choices in there] == [[c["token_ids"] for c in there[1]]] * 2


def test_a_session_stays_at_one_server_and_sessions_spread(routed: Routed) -> None:
    body = {"model": "tiny", "prompt": [[5, 6, 7]], "max_tokens": 1, "ignore_eos": True}
    used = set()
    for session in range(16):
        before = routed.answered()
        for _ in range(3):
            ask(routed.url, "/v1/completions", body, f"session-{session}")
        more = [now - then for now, then in zip(routed.answered(), before)]
        assert sorted(more) == [0, 3]
        used.add(more.index(3))
    assert used == {0, 1}


def run(routed: Routed | None, steps: int, **settings: Any) -> Trainer:
    server = {"urls": (routed.url,), "adapters": routed.shelf, "sessions": 16} if routed else {}
    return Trainer(build(small(steps=steps, batch_size=32, model="tiny", server=server, **settings)))


def test_a_run_through_it_is_the_run_in_process(routed: Routed) -> None:
    """More versions than a server keeps (8): those that nobody asks for make room."""
    before = routed.answered()
    rows: list[list[dict[str, Any]]] = []
    for there in (routed, None):
        trainer = run(there, steps=12)
        try:
            rows.append([trainer.step() for _ in range(12)])
        finally:
            trainer.parts.close()
    for far, near in zip(*rows):
        assert far["reward"] == near["reward"] and far["loss"] == pytest.approx(near["loss"], abs=1e-6)
        assert far["mismatch_max"] < 1e-4 and far["staleness_max"] == 0
    assert all(now > then for now, then in zip(routed.answered(), before)), "both servers played"


def test_a_server_behind_it_is_lost_and_the_step_is_whole(routed: Routed) -> None:
    trainer = run(routed, steps=3, seed=1)
    try:
        assert trainer.step()["episodes"] == 32
        routed.servers[1].kill()
        record = trainer.step()
        assert record["episodes"] == 32 and record["mismatch_max"] < 1e-4 and record["unscored_rate"] == 0
        routed.servers[1].restart()
        assert trainer.step()["episodes"] == 32
    finally:
        trainer.parts.close()
