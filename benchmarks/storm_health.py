"""How long `GET /health` takes while clients request as much as they may, and more.

The server runs in its own process. Four clients repeat the same attack; a fifth requests /health over one connection
every few milliseconds, from a third process, so that it waits for the server and not for the clients. The row `nothing`
is the same machine without an attack: compare with it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.storm_processes import Served
from benchmarks.wire import Connection, head, post

Case = dict[str, Any]
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
BAR_MS = 100.0
CLIENTS = 4


def _put(body: bytes, query: str = "?scale=1") -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return head("PUT", f"/v1/adapters/storm{query}", Content_Length=len(body), X_Content_SHA256=digest) + body


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def attacks() -> dict[str, bytes]:
    """Requests by name. What is within the bounds is worked on; the rest is refused."""
    small = [f"{i:0250}" for i in range(4096)]
    word, filled = "bet on the king ", "bet on the king " * 3000
    empty = {f"layer.{i}.lora_a": np.zeros((0, 4), np.float32) for i in range(200_000)}
    large = {"layer.lora_a": np.zeros((1 << 20, 16), np.float32)}
    return {
        "four texts of 1 MB": post(COMPLETE, {"prompt": ["x" * 1_000_000] * 4}),
        "20 texts of 48 KB, which fit the bounds": post(COMPLETE, {"prompt": [filled] * 20}),
        "4,096 choices of 250 bytes": post(COMPLETE, {"prompt": "hi", "guided_choice": small}),
        "4,096 choices of 500 bytes": post(COMPLETE, {"prompt": "hi", "guided_choice": [one * 2 for one in small]}),
        "20 choices of 48 KB": post(COMPLETE, {"prompt": "hi", "guided_choice": [filled + str(i) for i in range(20)]}),
        "/tokenize of 1 MB": post("/tokenize", {"prompt": "x" * 1_000_000}),
        "/tokenize of 48 KB": post("/tokenize", {"prompt": filled}),
        "4,096 messages": post(CHAT, {"messages": [_user(word)] * 4096}),
        "messages of 6,000 parts": post(CHAT, {"messages": [_user([{"type": "text", "text": "a"}] * 250)] * 24}),
        "260,000 token ids": post(COMPLETE, {"prompt": [7] * 260_000}),
        "2,000,000 token ids": post(COMPLETE, b'{"prompt":[' + b"7," * 2_000_000 + b"7]}"),
        "1,300,000 empty lists": post(COMPLETE, b'{"prompt":[' + b"[]," * 1_300_000 + b"[]]}"),
        "1,800,000 escaped quotes that end no text": post(COMPLETE, b"," * 300_000 + b'\\"' * 1_800_000),
        "400,000 keys": post(COMPLETE, b"{" + b",".join(b'"%x":1' % i for i in range(400_000)) + b"}"),
        "a long answer": post(
            COMPLETE, {"prompt": [7] * 3000, "n": 64, "max_tokens": 8, "return_token_ids": True, "logprobs": 20}
        ),
        "an adapter of 64 MB that does not fit": _put(safetensors.numpy.save(large)),
        "an adapter of 200,000 empty tensors": _put(safetensors.numpy.save(empty)),
        "an adapter's header of 60 MB": _put((60 << 20).to_bytes(8, "little") + b'{"a":[' + b"[]," * 21_000_000, ""),
        "500 connections that say nothing": b"",
    }


def health(model: str, seconds: float, say: Callable[[str], None], only: str = "") -> Case:
    """/health under each attack for some seconds."""
    found: dict[str, Any] = {}
    faults: Counter[str] = Counter()
    served = Served("--max-queue", 128, model=model)
    try:
        port = served.ready()
        for name, data in {"nothing": None, **attacks()}.items():
            if only not in name:
                continue
            found[name] = row = _row(port, data, seconds)
            say(f"health: {name}: {row}")
            for status in row["answers"]:
                if status.startswith("5") and status != "503":
                    faults[f"{name}: answers of {status}"] += row["answers"][status]
            for bad in row["bad"]:
                faults[f"{name}: /health: {bad}"] += 1
            if row["ms_p100"] > BAR_MS:
                faults[f"{name}: /health took {row['ms_p100']:.0f} ms"] += 1
    finally:
        code = served.end()
    if code != 0:
        faults[f"exit code {code}"] += 1
    return {"attacks": found, "faults": dict(faults)}


def _row(port: int, data: bytes | None, seconds: float) -> dict[str, Any]:
    over, answers = threading.Event(), Counter[str]()

    def attack() -> None:
        while not over.is_set():
            try:
                answers[str(Connection(port, 60.0).send(data or b"").status())] += 1
            except (ConnectionError, TimeoutError) as error:  # refused before all of it was sent
                answers[type(error).__name__] += 1

    idle = [Connection(port) for _ in range(500)] if data == b"" else []
    clients = [threading.Thread(target=attack) for _ in range(CLIENTS if data else 0)]
    for client in clients:
        client.start()
    try:
        probe = [sys.executable, "-m", __name__, str(port), str(seconds)]
        spent, bad = json.loads(subprocess.run(probe, check=True, stdout=subprocess.PIPE).stdout)
    finally:
        over.set()
        for connection in idle:
            connection.close()
        for client in clients:
            client.join()
    numbers = np.array(spent) * 1000
    quantiles = {f"ms_p{q}": round(float(np.percentile(numbers, q)), 1) for q in (50, 99, 100)}
    return {"probes": len(spent), **quantiles, "bad": bad, "answers": dict(answers)}


def _probe(port: int, seconds: float) -> tuple[list[float], list[str]]:
    """Seconds of each answer, and the answers that were not 200. A connection that was closed is opened anew."""
    spent, bad = [], []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            said = answer.read()
            well = answer.status == 200 and json.loads(said)["status"] == "ok"
            bad += [] if well else [f"{answer.status} {said!r}"]
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            bad.append(f"{type(error).__name__}: {error}")
            connection.close()
        spent.append(time.perf_counter() - start)
        time.sleep(0.003)
    connection.close()
    return spent, bad


if __name__ == "__main__":
    print(json.dumps(_probe(int(sys.argv[1]), float(sys.argv[2]))))
