"""Starting the two servers as processes, sending them requests, and reading their CPU time."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
HOST = "127.0.0.1"

# mlx_lm.server with the BLAS and the allocator settings that `legos serve` has; MLX's compiled kernels stay on.
_MLX_LM = (
    "import sys, mlx.core as mx\n"
    "from inference.loading import prepare_mlx\n"
    "prepare_mlx()\n"
    "(mx.enable_compile if sys.argv.pop(1) == 'compiled' else mx.disable_compile)()\n"
    "from mlx_lm.server import main\n"
    "main()\n"
)


class Server:
    """One server process on a port of its own."""

    def __init__(self, command: Sequence[str], log: Path, model: str) -> None:
        self.model, self.log = model, log
        self.resets = 0
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port: int = probe.getsockname()[1]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            )

    def wait(self, seconds: float = 120.0) -> None:
        """Until it answers a completion. RuntimeError when it does not."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                self.post(self.connect(), {"prompt": "a", "max_tokens": 1}).read()
                return
            time.sleep(0.2)
        raise RuntimeError(f"the server does not answer; its log says: {self.log.read_text()[-2000:]}")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self.port, timeout=120)

    def send(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> None:
        """A completion request with greedy decoding."""
        content = json.dumps({"model": self.model, "temperature": 0.0, **body}).encode()
        connection.request("POST", "/v1/completions", content, {"Content-Type": "application/json"})

    def post(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> http.client.HTTPResponse:
        """Send a request and await the head of the answer. ValueError when that is an error."""
        self.send(connection, body)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{answer.status}: {answer.read()[:300]!r}")
        return answer

    def complete(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> tuple[str, int]:
        """The text of a completion and the number of its tokens; a connection that is reset is made anew."""
        for _ in range(50):
            try:
                answer = json.loads(self.post(connection, body).read())
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                self.resets += 1  # mlx_lm.server has a short queue of connections
                connection.close()
                time.sleep(0.05)
        else:
            raise RuntimeError(f"{self.log.stem} resets every connection")
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]

    def cpu(self) -> float:
        """CPU seconds of the process, its threads, and its children that have ended."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS

    def cpu_by_thread(self) -> dict[str, float]:
        """CPU seconds of each thread by its id."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                found[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return found

    @property
    def main_thread(self) -> str:
        """The id of the thread that the event loop runs in."""
        return str(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(folder: Path, *, baselines: Sequence[str] = ("compiled", "not compiled")) -> Iterator[dict[str, Server]]:
    """`ours`, and mlx_lm.server in each of the ways named, all with the model in `folder`."""
    python = sys.executable
    commands = {"ours": [python, "-m", "legos_train.cli.main", "serve", "--model", str(folder)]}
    for how in baselines:
        commands[how] = [python, "-c", _MLX_LM, how, "--model", str(folder), "--host", HOST]
    servers: dict[str, Server] = {}
    try:
        for name, command in commands.items():
            servers[name] = Server(command, folder / f"{name.replace(' ', '-')}.log", str(folder))
        for server in servers.values():
            server.wait()
        yield servers
    finally:
        for server in servers.values():
            server.stop()


def ask_all(server: Server, prompts: Sequence[str], new: int, at_once: int) -> list[str]:
    """Completions of all prompts from `at_once` clients, each with a connection that it keeps where the server does."""
    connections = [server.connect() for _ in range(at_once)]

    def client(number: int) -> list[tuple[int, str]]:
        found = []
        for i in range(number, len(prompts), at_once):
            text, count = server.complete(connections[number], {"prompt": prompts[i], "max_tokens": new})
            if count != new:
                raise RuntimeError(f"{server.log.stem} ended a completion after {count} of {new} tokens")
            found.append((i, text))
        return found

    try:
        with ThreadPoolExecutor(at_once) as pool:
            said = dict(pair for pairs in pool.map(client, range(at_once)) for pair in pairs)
    finally:
        for connection in connections:
            connection.close()
    return [said[i] for i in range(len(prompts))]


def first_token(server: Server, prompt: str) -> float:
    """Seconds until a streamed completion says something."""
    connection = server.connect()
    start = time.perf_counter()
    answer = server.post(connection, {"prompt": prompt, "max_tokens": 8, "stream": True})
    try:
        for line in answer:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0].get("text"):
                return time.perf_counter() - start
        raise RuntimeError("the stream ended without a text")
    finally:
        connection.close()
