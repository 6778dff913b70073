"""Servers that are killed and stand still under a run: it fails with the bytes it has without that, or says why not."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from legos_train import Trainer
from legos_train.disk import MetricsFile
from legos_train.run import build
from tests.inference.live import LiveServer, wait_until
from tests.train.helpers import small
from tests.train.test_two_runs import EXACT, served


def test_a_server_killed_and_held_up_in_the_middle_of_its_answers_changes_no_bit() -> None:
    server = LiveServer("tiny", **EXACT)

    def ended() -> bytes:
        trainer = Trainer(build(small(steps=2, batch_size=8, server={"urls": (server.url,)})))
        try:
            for _ in range(2):
                assert trainer.step()["mismatch_max"] < 1e-4
            return trainer.parts.backend.fingerprint()
        finally:
            trainer.parts.close()

    done: list[str] = []
    over = threading.Event()

    def harm() -> None:
        for what in ("stand still", "kill"):
            before = server.engine.worker.steps
            while not over.is_set() and (not server.engine.running or server.engine.worker.steps < before + 20):
                before = min(before, server.engine.worker.steps)
                time.sleep(0.001)
            if over.is_set():
                return
            if what == "kill":
                server.kill()
                server.restart()
            else:
                server.engine.worker.call(lambda engine: time.sleep(0.3))
            done.append(what)

    try:
        alone = ended()
        thread = threading.Thread(target=harm)
        thread.start()
        try:
            assert ended() == alone
        finally:
            over.set()
            thread.join()
        assert done == ["stand still", "kill"] and served(server) == {}
    finally:
        server.stop()


# --- processes -------------------------------------------------------------------------------------------------------

LEGOS = [sys.executable, "-m", "legos_train"]


class Serve:
    """`legos serve` in a process; `start` begins anew on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()
        wait_until(self.ready, 180)

    def start(self) -> None:
        exact = ["--max-rows", "1", "--prefix-cache-mib", "0"]
        self.process = subprocess.Popen(
            [*LEGOS, "serve", "--port", str(self.port), *exact], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.loads(answer.read())

    def ready(self) -> bool:
        try:
            return bool(self.ask("/ready")["ready"])
        except OSError:
            return False

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def serve() -> Iterator[Serve]:
    server = Serve()
    try:
        yield server
    finally:
        server.send(signal.SIGCONT)
        server.process.kill()
        server.process.wait()


def begin(server: Serve, folder: Path, seed: int, *options: str) -> subprocess.Popen[str]:
    settings = ["--steps", "24", "--batch-size", "16", "--lora.rank", "4", "--eval.every", "0", "--seed", str(seed)]
    return subprocess.Popen(
        [*LEGOS, "train", *settings, "--server", server.url, "--run-dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def adapter_of(run: subprocess.Popen[str], folder: Path) -> bytes:
    """What a run leaves, once it has ended well with every step taken once."""
    said, _ = run.communicate(timeout=900)
    assert run.returncode == 0, said[-2000:]
    assert [row["step"] for row in MetricsFile.read(folder / "metrics.jsonl")] == list(range(1, 25))
    return (folder / "last" / "adapters.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_processes_on_one_server_leave_what_each_leaves_alone(tmp_path: Path) -> None:
    league = ("--league.mode", "fsp", "--league.pool", "3", "--league.snapshot-every", "1", "--optim.lr", "2e-3")
    runs: list[tuple[int, tuple[str, ...]]] = [(0, ()), (1, league)]
    with serve() as server:
        at_once = [begin(server, tmp_path / f"both{seed}", seed, *options) for seed, options in runs]
        together = [adapter_of(run, tmp_path / f"both{seed}") for run, (seed, _) in zip(at_once, runs, strict=True)]
        assert server.ask("/v1/legos/info")["adapters"] == {}
        for (seed, options), both in zip(runs, together, strict=True):
            folder = tmp_path / f"alone{seed}"
            assert adapter_of(begin(server, folder, seed, *options), folder) == both
        assert together[0] != together[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_and_stalls_of_the_server_change_no_bit(tmp_path: Path) -> None:
    draw = random.Random(14)
    with serve() as server:
        alone = adapter_of(begin(server, tmp_path / "alone", 0), tmp_path / "alone")
        run, folder = begin(server, tmp_path / "harmed", 0), tmp_path / "harmed"
        rows = folder / "metrics.jsonl"
        for number in range(20):
            wait_until(
                lambda number=number: (
                    run.poll() is not None  # type: ignore[misc]
                    or (rows.exists() and rows.read_bytes().count(b"\n") > number)
                ),
                300,
            )
            time.sleep(draw.uniform(0.0, 0.4))
            if number % 2:
                server.send(signal.SIGSTOP)
                time.sleep(10.0 if number == 9 else draw.uniform(0.2, 2.0))
                server.send(signal.SIGCONT)
            else:
                server.send(signal.SIGKILL)
                server.process.wait()
                server.start()
        assert adapter_of(run, folder) == alone
        wait_until(server.ready, 180)
        assert server.ask("/v1/legos/info")["adapters"] == {}
