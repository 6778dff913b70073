"""The server against mlx_lm.server, over HTTP, each in its own process with the same model directory.

    python -m benchmarks.server [--json out.json] [--cases c1,ttft] [--rounds 5]

A random Qwen3 of 3.7 million parameters in float32, different prompts in every round, greedy decoding, the same fast
BLAS with one thread on both sides; mlx_lm.server runs with or without MLX's compiled kernels, whichever suits it best.
Only the CPU seconds of the server's process count (/proc/PID/stat), not the client's.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.measuring import Case, Found, compare, options, report
from benchmarks.models import save_model
from benchmarks.servers import Server, ask_all, first_token, running
from inference import AsyncEngine, Engine, Request, SamplingParams, load
from inference.loading import prepare_mlx

PROMPT, NEW = 128, 64
LONG = 1000  # tokens that take several seconds
STOCK = "compiled"  # mlx_lm.server as it comes

T = TypeVar("T")
_servers: dict[str, Server] = {}
_tokenizers: dict[str, Any] = {}
_seeds = iter(range(1, 1 << 30))


def prompts(folder: str, count: int, tokens: int = PROMPT) -> tuple[list[str], list[list[int]]]:
    """New texts of exactly so many tokens that begin differently, and their ids."""
    if folder not in _tokenizers:
        _tokenizers[folder] = load(folder)[1]
    tokenizer = _tokenizers[folder]
    rng = np.random.default_rng(next(_seeds))
    texts, ids = [], []
    while len(texts) < count:
        text = tokenizer.decode(rng.integers(400, 2000, 2 * tokens).tolist())
        encoded = tokenizer.encode(text, add_special_tokens=False)[:tokens]
        text = tokenizer.decode(encoded)
        if tokenizer.encode(text, add_special_tokens=False) == encoded:
            texts.append(text)
            ids.append(encoded)
    return texts, ids


def spent(server: Server, work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds that some work costs a server, and what the work brings."""
    before = server.cpu()
    found = work()
    return server.cpu() - before, found


def throughput(at_once: int, repeats: int) -> Found:
    """So many clients; every round has enough requests to take about a second."""
    count = max(at_once, 8)
    sides: dict[str, list[float]] = {name: [] for name in _servers}
    same: list[bool] = []
    names = list(_servers)
    for round_ in range(repeats + 2):  # one to warm up, one to choose the better baseline
        texts, _ = prompts(_servers["ours"].model, count)
        said: dict[str, list[str]] = {}
        for name in names:
            server = _servers[name]
            cost, said[name] = spent(server, partial(ask_all, server, texts, NEW, at_once))
            sides[name].append(cost)
        # mlx-lm drops a space at the beginning of a completion
        same += [a.lstrip() == b.lstrip() for name in names[1:] for a, b in zip(said["ours"], said[name])]
        if round_ == 1:
            tried = {name: sides[name][1] for name in names[1:]}
            names = ["ours", min(tried, key=lambda name: tried[name])]
    found = compare(sides["ours"][2:], sides[names[1]][2:], count * NEW)
    return found | {
        "unit": "tokens per CPU second",
        "baseline_is": names[1],
        "baseline_variants": {name: count * NEW / seconds for name, seconds in tried.items()},
        "equal": sum(same) / len(same),
        "connections reset": {name: _servers[name].resets for name in _servers},
        "must": {"the same text": sum(same) / len(same) > 0.99},
    }


def http(repeats: int) -> Found:
    """CPU time of our server over that of the engine in this process, both with 8 clients, 24 requests a round.

    A client is a coroutine here, which asks again when it has its answer, as the server's clients do. (An engine that
    gets its requests from one loop starts them together, and computes their prompts together, too.)
    """
    server = _servers["ours"]
    asking, serving, alone = [], [], []
    for round_ in range(2 * repeats + 1):  # a small difference, much noise
        texts, ids = prompts(server.model, 24)
        before = server.cpu_by_thread()
        cost, _ = spent(server, partial(ask_all, server, texts, NEW, 8))
        threads = {name: seconds - before.get(name, 0.0) for name, seconds in server.cpu_by_thread().items()}
        own = asyncio.run(in_process(server.model, ids, 8))
        if round_:
            serving.append(cost)
            asking.append(threads[server.main_thread])
            alone.append(own)
    found = compare(serving, alone, 24 * NEW)
    more = {"of it in the HTTP thread": statistics.median(asking) / statistics.median(serving)}
    return found | more | {"unit": "tokens per CPU second", "overhead": 1 / found["ratio"] - 1}


async def in_process(model: str, ids: list[list[int]], at_once: int) -> float:
    """CPU seconds of an engine with the same requests and as many clients."""
    waiting = [Request(p, SamplingParams(max_tokens=NEW, temperature=0.0), park=True) for p in ids]
    async with AsyncEngine(partial(Engine.load, model)) as engine:
        start = time.process_time()

        async def client() -> None:
            while waiting:
                await engine.complete(waiting.pop())

        await asyncio.gather(*(client() for _ in range(at_once)))
        return time.process_time() - start


class Load:
    """Clients that always have a long completion running, until they are told to stop."""

    def __init__(self, server: Server, clients: int) -> None:
        self.server, self._stop = server, threading.Event()
        texts, _ = prompts(server.model, clients * 40, 24)
        self.threads = [
            threading.Thread(target=self._client, args=(texts[i::clients],), daemon=True) for i in range(clients)
        ]

    def _client(self, texts: list[str]) -> None:
        for text in texts:
            if self._stop.is_set():
                return
            connection = self.server.connect()
            self.server.complete(connection, {"prompt": text, "max_tokens": 400})
            connection.close()

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()
        time.sleep(2.0)

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.join()


def ttft(repeats: int) -> Found:
    """Wall milliseconds until a stream says its first token while 8 requests of 400 tokens run, 24 probes a side."""
    probes = max(24, 4 * repeats)
    found: dict[str, list[float]] = {}
    for name in ("ours", STOCK):
        server = _servers[name]
        texts, _ = prompts(server.model, probes, 32)
        found[name] = []
        with Load(server, 8):
            for text in texts:
                found[name].append(first_token(server, text) * 1e3)
                time.sleep(0.05)
    medians = {name: statistics.median(times) for name, times in found.items()}
    ratio = medians["ours"] / medians[STOCK]
    return {
        "ours": medians["ours"],
        "baseline": medians[STOCK],
        "ratio": ratio,
        "unit": "ms of wall time",
        "ms": found,
    }


def idle(repeats: int) -> Found:
    """Per cent of a CPU that a server uses from half a second after its 16 clients left, for two seconds.

    The worst of some rounds counts for ours, with streams and without; the baseline is looked at once for each.
    """
    ours = {stream: [after_leaving(_servers["ours"], stream) for _ in range(repeats)] for stream in (True, False)}
    baseline = {stream: after_leaving(_servers[STOCK], stream) for stream in (True, False)}
    return {
        "ours": max(max(values) for values in ours.values()),
        "baseline": max(baseline.values()),
        "unit": "% of a CPU, the worst",
        "streams": {"ours": ours[True], "baseline": baseline[True]},
        "not streams": {"ours": ours[False], "baseline": baseline[False]},
    }


def after_leaving(server: Server, stream: bool) -> float:
    texts, _ = prompts(server.model, 16, 24)
    connections = [server.connect() for _ in texts]
    for connection, text in zip(connections, texts):
        server.send(connection, {"prompt": text, "max_tokens": LONG, "stream": stream})
    time.sleep(0.7)
    for connection in connections:
        connection.close()
    time.sleep(0.5)
    start = time.monotonic()
    cost, _ = spent(server, partial(time.sleep, 2.0))
    percent = 100 * cost / (time.monotonic() - start)
    until = time.monotonic() + 90  # the next measurement begins when this one's work is over
    while spent(server, partial(time.sleep, 0.5))[0] > 0.05 and time.monotonic() < until:
        pass
    return percent


CASES = {
    **{
        f"c{n}": Case(f"{n} at once, {PROMPT} + {NEW} tokens, against mlx_lm.server", bar, partial(throughput, n))
        for n, bar in ((1, 1.5), (8, 1.5), (32, 1.4))
    },
    "http": Case("8 at once: CPU over the engine's in-process", 0.10, http, key="overhead", most=True),
    "ttft": Case("ms to the first token with 8 long requests running", 0.2, ttft, most=True),
    "idle": Case("% of a CPU 0.5 s after 16 clients left", 2.0, idle, key="ours", most=True),
}


def main() -> int:
    chosen = options("The server's benchmarks.", CASES)
    prepare_mlx()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder, "4m")
        with running(folder) as servers:
            _servers.update(servers)
            return 1 if report(CASES, chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
