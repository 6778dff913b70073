"""The storms of storm.py that need processes: start/serve/stop cycles, and schemathesis against a live server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.wire import Connection, Live, post
from inference import loading
from inference.server import Settings

Case = dict[str, Any]
_COMMAND = [sys.executable, "-c", "import sys; from legos_train.cli.main import main; sys.exit(main())", "serve"]
_ADDRESS = re.compile(r"http://[^ ]*:(\d+)")


class Served:
    """`legos serve` as a process of its own, on a free port. `log` is what it wrote so far."""

    def __init__(self, *options: object, model: str = "tiny") -> None:
        command = [*_COMMAND, "--model", model, "--port", "0", *map(str, options)]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self.log = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line.decode(errors="replace")

    def listening(self, seconds: float = 60.0) -> int:
        """The port, once it is bound. The model may still be loading."""
        self._until(lambda: _ADDRESS.search(self.log) is not None, seconds)
        found = _ADDRESS.search(self.log)
        assert found is not None
        self.port = int(found[1])
        return self.port

    def ready(self, seconds: float = 60.0) -> int:
        """The port, once requests are answered."""
        self.listening(seconds)
        self._until(lambda: self.status("/ready") == 200, seconds)
        return self.port

    def status(self, path: str) -> int:
        """The status of a GET."""
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        return Connection(self.port).send(request.encode()).status()

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal, wait, and return the exit code."""
        self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for the end; a process that does not end is killed, and its code is that of SIGKILL."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join(10)
        code = self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _until(self, true: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {self.wait()}:\n{self.log}")
            if time.monotonic() > end:
                self.process.kill()
                raise TimeoutError(f"not within {seconds:g} seconds; it wrote:\n{self.log}")
            time.sleep(0.02)


def cycles(model: str, count: int, say: Callable[[str], None]) -> Case:
    """Start, serve, SIGTERM: every second time with a request running, every fifth time while the model loads."""
    codes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(count):
        served = Served(model=model)
        finished = b"\n\n"
        if number % 5 == 4:
            served.listening()
            code = served.end()
        else:
            port = served.ready()
            body = {"prompt": "play", "max_tokens": 200, "ignore_eos": True, "stream": True}
            running = Connection(port, 60.0).send(post("/v1/completions", body))
            if number % 2:
                running.socket.recv(64)
                served.process.send_signal(signal.SIGTERM)
            finished = running.rest()
            code = served.end() if number % 2 == 0 else served.wait()
        codes[str(code)] += 1
        if code != 0:
            faults[f"exit code {code}: {served.log[-300:]}"] += 1
        if number % 5 != 4 and b"[DONE]" not in finished:
            faults["a running request was not finished"] += 1
        if number % 10 == 9:
            say(f"cycles: {number + 1} of {count}, exit codes {dict(codes)}")
    seconds = time.perf_counter() - start
    return {"cycles": count, "exit_codes": dict(codes), "seconds": seconds, "faults": dict(faults)}


def fuzz(model: str, count: int, seed: int, program: str | None, say: Callable[[str], None]) -> Case:
    """At least `count` cases that schemathesis makes of /openapi.json; no 5xx, and the server answers as before."""
    if program is None:
        return {"faults": {"schemathesis is not installed: uv sync --group fuzz, or --schemathesis PATH": 1}}
    faults: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Settings(model=short_context(model, Path(folder)), adapter_root=Path(folder)))
        try:
            good = {"prompt": "play", "max_tokens": 30, "temperature": 0}
            before = live.ask("POST", "/v1/completions", good).json()["choices"][0]["text"]
            rounds = 0
            while sum(answers.values()) < count:
                output = _schemathesis(program, live.port, min(count // 8 + 1, 250), seed + rounds, folder)
                rounds += 1
                answers = _answers(live)
                say(f"fuzz: {sum(answers.values())} of {count}, answers by status {dict(answers)}")
                if "FAILURES" in output or "ERRORS" in output:
                    faults[output[-3000:]] += 1
                    break
            after = live.ask("POST", "/v1/completions", good).json()["choices"][0]["text"]
            if after != before:
                faults["a good request is answered otherwise than before"] += 1
            for status in answers:
                if status.startswith("5"):
                    faults[f"answers with status {status}"] = answers[status]
        finally:
            live.stop()
    return {
        "cases": sum(answers.values()),
        "answers": dict(sorted(answers.items())),
        "seconds": time.perf_counter() - start,
        "faults": dict(faults),
    }


def short_context(model: str, folder: Path) -> str:
    """The model with a short context: a fuzzed request may ask for all of it, 128 times."""
    path = loading.find_model(model)
    copy = folder / "model"
    copy.mkdir()
    for file in path.iterdir():
        (copy / file.name).symlink_to(file)
    config = json.loads((path / "config.json").read_text()) | {"max_position_embeddings": 128}
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config))
    return str(copy)


def _schemathesis(program: str, port: int, examples: int, seed: int, folder: str) -> str:
    command: Sequence[object] = [
        program, "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", "not_a_server_error",
        "--exclude-path", "/pause", "--phases", "examples,coverage,fuzzing", "--max-examples", examples,
        "--seed", seed, "--request-timeout", 30, "--continue-on-failure", "--no-color", "--warnings", "off",
    ]  # fmt: skip
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600, check=False, cwd=folder)
    if done.returncode not in (0, 1):
        return f"ERRORS: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _answers(live: Live) -> Counter[str]:
    text = live.ask("GET", "/metrics").body.decode()
    found = re.findall(r'^legos_answers_total\{status="(\d+)"\} ([\d.]+)', text, re.M)
    return Counter({status: int(float(number)) for status, number in found})
