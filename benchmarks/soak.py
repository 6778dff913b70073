"""An hour of mixed load on one server: does it grow, leak descriptors, or slow down?

    python -m benchmarks.soak --minutes 60 [--train] [--json soak.json]

Clients request whole and streamed completions and chats, with lists of choices, log-probabilities and several answers,
and disconnect in the middle of some; bad requests are mixed in; an adapter is published every few seconds, under a
permanent name and under names that come and go, and every fifth publication is damaged. With --train, a training run in
server mode publishes to the same server all the time. Each minute has a row: the server process's peak memory (RSS)
over its seconds, its open descriptors, and tokens per second of its CPU time, which other work on the machine affects
little.

The bars: RSS grows by at most 2 %, median of the last third of the rows against that of the second sixth, so that the
first ten minutes of an hour do not count (the highest row is reported too: it depends on how many requests happen to
coincide); as many descriptors at the end as after the first sixth, give or take a client's connection; no 5xx answer;
throughput falls by at most 5 %, by the same medians. Exit code 1 if one is missed. Less than half an hour says nothing
about growth and drift, so these bars are then skipped. Before a longer run, the engine's maximum of rows runs at once,
and the server is sent as many conversations as it remembers (two minutes): everything bounded is then full, and does
not count as growth. Linux (reads /proc).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.storm import CORRUPT, ConstantAdapters
from benchmarks.storm_processes import Served
from benchmarks.wire import Connection, call, post

GROWTH, DRIFT, CONNECTIONS, LEAST = 0.02, 0.05, 2, 30
ROWS, CONVERSATIONS = 64, 4096  # as `Engine` and `Conversations` have them
CACHE = 32  # MiB of kept prompt beginnings, so that the cache is full long before growth is counted
TICKS = os.sysconf("SC_CLK_TCK")


class Soak:
    """The load, and what was seen of it.

    Args:
        served: the server.
        adapters: what is published.
        end: when to stop, by `time.monotonic`.
        pause: mean seconds between two requests of a client.
    """

    def __init__(self, served: Served, adapters: ConstantAdapters, end: float, pause: float):
        self.served, self.adapters, self.end, self.pause = served, adapters, end, pause
        self.statuses: Counter[int] = Counter()
        self.tokens = self.published = self.refused = self.cut = 0
        self.faults: Counter[str] = Counter()

    async def client(self, number: int) -> None:
        """Asks until the end."""
        draw = random.Random(number)
        while time.monotonic() < self.end:
            path, body = self._request(draw)
            if draw.random() < 0.1:
                await asyncio.to_thread(self._go_away, draw, post(path, body))
            else:
                await self._ask(path, body)
            await asyncio.sleep(draw.expovariate(1.0 / self.pause))

    async def _ask(self, path: str, body: dict[str, Any]) -> None:
        try:
            reply = await call(self.served.port, "POST", path, json.dumps(body).encode())
        except (OSError, TimeoutError) as error:
            self.faults[f"{type(error).__name__}: {error}"] += 1
            return
        self.statuses[reply.status] += 1
        if reply.status >= 500 and reply.status != 503:
            self.faults[f"{path}: {reply.status} {reply.body[:100]!r}"] += 1
        if reply.status == 200 and not body.get("stream"):
            self.tokens += reply.json()["usage"]["completion_tokens"]

    def _request(self, draw: random.Random) -> tuple[str, dict[str, Any]]:
        model = draw.choice(["tiny", "tiny", "policy"])
        common = {"model": model, "max_tokens": draw.randrange(1, 40), "temperature": draw.choice([0, 1.0])}
        kind = draw.randrange(6)
        if kind == 0:
            return "/v1/completions", {"prompt": draw.choice([7, "", ["a"] * 200, None]), **common}  # mostly refused
        if kind == 1:
            prompt = [draw.randrange(20, 200) for _ in range(draw.randrange(1, 300))]
            return "/v1/completions", {"prompt": prompt, "n": draw.choice([1, 4]), "logprobs": 2, **common}
        messages = [{"role": "user", "content": f"Question {draw.randrange(10**6)}: " + "word " * draw.randrange(50)}]
        if kind == 2:
            choices = [f"[{word}]" for word in ("bet", "pass", "fold", str(draw.randrange(100)))]
            return "/v1/chat/completions", {"messages": messages, "guided_choice": choices, **common}
        return "/v1/chat/completions", {"messages": messages, "stream": kind == 3, **common}

    def _go_away(self, draw: random.Random, data: bytes) -> None:
        connection = Connection(self.served.port)
        connection.send(data[: draw.randrange(1, len(data) + 1)])
        time.sleep(draw.uniform(0.0, 0.2))
        self.cut += 1
        if draw.random() < 0.5:
            connection.reset()
        else:
            connection.close()

    async def publisher(self) -> None:
        """Publishes until the end: `policy` mostly, else a name that is deleted afterwards."""
        version, draw = 0, random.Random("publisher")
        while time.monotonic() < self.end:
            version += 1
            name = f"guest-{version}" if version % 4 == 0 else "policy"
            weights = self.adapters.weights(version)
            body = safetensors.numpy.save({key: np.ascontiguousarray(value) for key, value in weights.items()})
            digest = hashlib.sha256(body).hexdigest()
            headers = {"X_Content_SHA256": digest}
            bad = version % 5 == 0
            if bad:
                body, headers = CORRUPT[draw.choice(list(CORRUPT))](weights, body)
            path = f"/v1/adapters/{name}?scale=1&version={version}"
            try:
                reply = await call(self.served.port, "PUT", path, body, **headers)
                if name != "policy" and not bad:
                    await call(self.served.port, "DELETE", f"/v1/adapters/{name}")
            except (OSError, TimeoutError) as error:
                self.faults[f"publication {version}: {type(error).__name__}: {error}"] += 1
                continue
            if reply.status != (400 if bad else 200):
                self.faults[f"publication {version}: {reply.status} {reply.body[:100]!r}"] += 1
            self.refused += reply.status == 400
            self.published += reply.status == 200
            await asyncio.sleep(draw.uniform(1.0, 4.0))

    def resident(self) -> float:
        """MiB that the server's process holds now."""
        pages = int(Path(f"/proc/{self.served.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def row(self, minute: float) -> dict[str, float]:
        """The most that the server's process held in `minute` seconds from now, and what it has done by then."""
        process, end, most = Path(f"/proc/{self.served.process.pid}"), time.monotonic() + minute, self.resident()
        while (left := end - time.monotonic()) > 0.0:
            await asyncio.sleep(min(1.0, left))
            most = max(most, self.resident())
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return {
            "rss_mib": most,
            "descriptors": len(os.listdir(process / "fd")),
            "cpu_seconds": (int(fields[11]) + int(fields[12])) / TICKS,
            "tokens": float(self.tokens),
            "requests": float(sum(self.statuses.values())),
        }

    async def warm_up(self) -> None:
        """Fill what has a bound: keys and values of the most rows, and the remembered conversations."""
        draw = random.Random("warm")
        peak = [{"prompt": [draw.randrange(20, 200) for _ in range(400)], "max_tokens": 40} for _ in range(ROWS)]
        await asyncio.gather(*(self._ask("/v1/completions", {"model": "tiny", **one}) for one in peak))

        async def ask(numbers: range) -> None:
            for number in numbers:
                messages = [{"role": "user", "content": f"Before all, question {number}: " + "word " * (number % 50)}]
                body = {"model": "tiny", "messages": messages, "max_tokens": 1}
                await self._ask("/v1/chat/completions", body)

        await asyncio.gather(*(ask(range(first, CONVERSATIONS, 8)) for first in range(8)))

    async def run(self, clients: int, minute: float, warm: bool) -> list[dict[str, float]]:
        """Everything at once, after the warm-up if asked for; returns a row for each `minute` seconds."""
        if warm:
            start = time.monotonic()
            await self.warm_up()
            self.end += time.monotonic() - start
        at_work = [asyncio.ensure_future(self.client(number)) for number in range(clients)]
        at_work.append(asyncio.ensure_future(self.publisher()))
        rows = [await self.row(0.0)]
        while time.monotonic() < self.end:
            rows.append(await self.row(minute))
            shown = "  ".join(f"{name} {value:.0f}" for name, value in rows[-1].items())
            print(f"{len(rows) - 1:3}  {shown}  faults {sum(self.faults.values())}", flush=True)
        await asyncio.gather(*at_work)
        return rows


def figures(rows: list[dict[str, float]]) -> dict[str, float]:
    """Growth, descriptors and drift of `rows`, as the module text says."""
    warm = len(rows) // 6 + 1
    settled, last = rows[warm:], rows[-max(1, len(rows) // 3) :]
    speeds = [
        (after["tokens"] - before["tokens"]) / max(after["cpu_seconds"] - before["cpu_seconds"], 1e-9)
        for before, after in itertools.pairwise(rows)
    ]
    first = statistics.median(speeds[warm - 1 : 2 * warm])
    earlier, later = ([row["rss_mib"] for row in part] for part in (rows[warm : 2 * warm], last))
    return {
        "rss_growth": statistics.median(later) / max(statistics.median(earlier), 1e-9) - 1.0,
        "rss_peak_growth": max(later) / max(*earlier, 1e-9) - 1.0,
        "descriptors_more": last[-1]["descriptors"] - settled[0]["descriptors"],
        "throughput_drift": statistics.median(speeds[-len(last) :]) / max(first, 1e-9) - 1.0,
    }


def main() -> int:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.3, help="mean seconds between a client's requests")
    parser.add_argument("--train", action="store_true", help="also run a training run in server mode")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    served = Served("--prefix-cache-mib", CACHE)
    training = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            served.ready()
            if options.train:
                flags = ["--env", "KuhnPoker-v0", "--steps", "1000000", "--batch-size", "16", "--eval.every", "0"]
                flags += ["--server", f"http://127.0.0.1:{served.port}", "--run-dir", f"{folder}/run"]
                command = [sys.executable, "-m", "legos_train", "train", *flags]
                training = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # its errors are to be seen
            soak = Soak(served, ConstantAdapters("tiny"), time.monotonic() + 60 * options.minutes, options.pause)
            rows = asyncio.run(
                soak.run(options.clients, min(60.0, 60 * options.minutes / 12), options.minutes >= LEAST)
            )
            if training is not None and training.poll() is not None:
                soak.faults[f"the training run ended with {training.returncode}"] += 1
        finally:
            if training is not None:
                training.terminate()
                training.wait(60)
            code = served.end()
    if code:
        soak.faults[f"the server ended with {code}"] += 1
    found = figures(rows)
    result = {
        "minutes": options.minutes,
        "requests": sum(soak.statuses.values()),
        "statuses": {str(status): count for status, count in sorted(soak.statuses.items())},
        "cut_off": soak.cut,
        "published": soak.published,
        "refused": soak.refused,
        **found,
        "faults": dict(soak.faults),
    }
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
    grown = found["rss_growth"] > GROWTH or found["descriptors_more"] > CONNECTIONS
    missed = options.minutes >= LEAST and (grown or found["throughput_drift"] < -DRIFT)
    return int(missed or bool(soak.faults))


if __name__ == "__main__":
    sys.exit(main())
