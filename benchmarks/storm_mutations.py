"""Mutated requests of every route against a live server: all are answered, none with 5xx, and nothing stays behind."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.mutations import good, mutate
from benchmarks.storm_processes import short_context
from benchmarks.wire import Live
from inference.server import Settings, running
from inference.server.settings import Limits

Case = dict[str, Any]
GOOD = {"prompt": "the player says", "max_tokens": 8, "temperature": 0}
PATIENCE = 30.0  # seconds after which a request that is not answered counts as hung


def mutations(model: str, adapter: bytes, count: int, seed: int, say: Callable[[str], None], clients: int = 16) -> Case:
    """`count` requests, each a function of (seed, number). After each hundred a good one must be answered as before."""
    faults: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "adapters"
        root.mkdir()
        limits = Limits(body_seconds=1.0)
        live = Live(Settings(model=short_context(model, Path(folder)), adapter_root=root, limits=limits))
        shapes = good(adapter)

        async def client(numbers: Any) -> None:
            nonlocal slowest
            for number in numbers:
                draw = random.Random(f"{seed} {number}")
                data = mutate(draw.choice(shapes), draw, shapes)
                start = time.perf_counter()
                status = await _status(live.port, data)
                slowest = max(slowest, time.perf_counter() - start)
                answers[status] += 1
                if status.startswith("5") or not status.isdigit():
                    faults[f"{status} for number {number} of seed {seed}: {data[:300]!r}"] += 1
                if b"/pause" in data[:200]:
                    await asyncio.to_thread(live.ask, "POST", "/resume")
                if number % 100 == 99 and await asyncio.to_thread(said) != before:
                    faults[f"a good request is answered otherwise after number {number}"] += 1
                if number % 5000 == 4999:
                    say(f"mutations: {number + 1} of {count}, {dict(answers)}, {sum(faults.values())} faults")

        async def storm() -> None:
            numbers = iter(range(count))
            await asyncio.gather(*(client(numbers) for _ in range(clients)))

        def said() -> Any:
            while True:
                reply = live.ask("POST", "/v1/completions", GOOD)
                if reply.status != 200:
                    return reply
                choice = reply.json()["choices"][0]
                if choice["finish_reason"] != "abort":  # by a /pause of another client, whose default that is
                    return choice["text"]

        try:
            before = said()
            start = time.perf_counter()
            with mock.patch.object(running._Protocol, "head_seconds", 1.0):
                asyncio.run(storm())
            seconds = time.perf_counter() - start
            live.until(lambda: not any(live.holds()[name] for name in ("requests", "rows", "listeners")), 10.0)
            if said() != before:
                faults["a good request is answered otherwise afterwards"] += 1
        finally:
            live.stop()
    return {
        "cases": sum(answers.values()),
        "answers": dict(sorted(answers.items())),
        "slowest_seconds": slowest,
        "seconds": seconds,
        "faults": dict(faults),
    }


async def _status(port: int, data: bytes) -> str:
    """The status of the answer; 0 for a connection that was closed without one; else what went wrong."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head = b"HTTP/1.1 100 "
        while head.startswith(b"HTTP/1.1 100 "):  # no answer yet, but leave to send the body
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        if b"\r\nconnection: close" in head.lower():  # else it waits for another request
            await asyncio.wait_for(reader.read(-1), PATIENCE)
    except TimeoutError:
        return "no answer"
    except (ConnectionError, asyncio.IncompleteReadError):
        return "0"
    finally:
        writer.close()
    return head.split()[1].decode("latin-1")
