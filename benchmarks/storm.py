"""Stress tests of the server: swaps under load, vanishing clients, restarts, fuzzed requests.

`python -m benchmarks.storm --full [--json out.json] [--case swaps drops health mutations cycles fuzz]`; without --full
a small storm of each. Besides its numbers, every case counts its `faults`; the exit code is 1 if there are any.

* swaps: adapters are published while clients generate, a fifth of them corrupt. Each version's adapter makes the model
  emit only its own token, so that every completion shows which version sampled which token;
* drops: half of the requests are cut off at a random point, by FIN or RST; their resources must be free within 2 s, and
  the others must give the same answers as alone;
* health: how long /health takes under each of several attacks, including the slowest answer (storm_health.py);
* mutations: good requests of every route, changed at random (mutations.py); no 5xx, no hang, nothing left behind;
* cycles: start, serve, SIGTERM with a request running, exit code 0 (storm_processes.py);
* fuzz: schemathesis against /openapi.json; needs `uv sync --group fuzz` or --schemathesis PATH (storm_processes.py).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import safetensors.numpy

from benchmarks import storm_health, storm_mutations, storm_processes
from benchmarks.wire import Connection, Live, Reply, call, post
from inference import loading
from inference.server import Settings

Case = dict[str, Any]
Corrupt = Callable[[dict[str, np.ndarray], bytes], tuple[bytes, dict[str, str]]]
RANK, LOUD = 8, 100.0
MARGIN = 1.0  # nats; at temperature 0.02 another token is drawn once in 10^20
MODES = ("pin", "pin", "keep", "pin", "wait")


class ConstantAdapters:
    """Adapters under which the model says one token only, whatever it is asked.

    In the last block gate and up are made +-c (x . a_k) for random directions a_k, so silu(gate) * up sums up to about
    c^2 (x . a_k)^2, which is positive for every x; down turns that sum into the direction of the token's embedding.
    """

    def __init__(self, model_name: str) -> None:
        model, _, _ = loading.load(model_name)
        path = f"model.layers.{len(model.layers) - 1}.mlp"
        embedding = np.array(model.model.embed_tokens.weight.astype(mx.float32))
        self._goals = embedding / np.array(model.model.norm.weight.astype(mx.float32))
        # How far the logit of a token is above all others when the last hidden state is the token's own embedding.
        alike = embedding @ embedding.T
        own = alike.diagonal().copy()
        np.fill_diagonal(alike, -np.inf)
        margins = (own - alike.max(axis=1)) / np.sqrt((embedding**2).mean(axis=1) + 1e-9)
        self._tokens = np.argsort(-margins)[:128].tolist()
        width = embedding.shape[1]
        if margins[self._tokens[-1]] < MARGIN:
            raise ValueError(f"{model_name} has no 128 tokens that are {MARGIN} nats apart; the storm needs another")
        units = model.layers[-1].mlp.down_proj.weight.shape[1]
        spread = np.zeros((RANK, units), np.float32)
        spread[np.arange(RANK), np.arange(RANK)] = LOUD
        spread[np.arange(RANK), np.arange(RANK, 2 * RANK)] = -LOUD
        gather = np.zeros((units, RANK), np.float32)
        gather[: 2 * RANK, 0] = LOUD
        directions = np.random.default_rng(0).normal(size=(width, RANK)).astype(np.float32)
        self._fixed = {f"{path}.down_proj.lora_a": gather}
        for name in ("gate_proj", "up_proj"):
            self._fixed |= {f"{path}.{name}.lora_a": directions, f"{path}.{name}.lora_b": spread}
        self._last = f"{path}.down_proj.lora_b"

    def token(self, version: int) -> int:
        """The only token that this version says."""
        return int(self._tokens[version % len(self._tokens)])

    def weights(self, version: int) -> dict[str, np.ndarray]:
        """The adapter of a version."""
        goal = np.zeros((RANK, self._goals.shape[1]), np.float32)
        goal[0] = self._goals[self.token(version)]
        return self._fixed | {self._last: goal}


def _with_digest(body: bytes) -> dict[str, str]:
    return {"X_Content_SHA256": hashlib.sha256(body).hexdigest()}


def _changed(change: Callable[[np.ndarray], np.ndarray]) -> Corrupt:
    def corrupt(weights: dict[str, np.ndarray], body: bytes) -> tuple[bytes, dict[str, str]]:
        name = min(weights)
        data = safetensors.numpy.save(weights | {name: np.ascontiguousarray(change(weights[name]))})
        return data, _with_digest(data)

    return corrupt


CORRUPT: dict[str, Corrupt] = {
    "another body": lambda weights, body: (body[:-1] + bytes([body[-1] ^ 1]), _with_digest(body)),
    "truncated": lambda weights, body: (body[: len(body) // 2], _with_digest(body[: len(body) // 2])),
    "NaN": _changed(lambda w: np.where(np.arange(w.size).reshape(w.shape) == 7, np.nan, w).astype(np.float32)),
    "infinity": _changed(lambda w: np.full_like(w, np.inf)),
    "another shape": _changed(lambda w: w[:-1]),
    "half of a pair": lambda weights, body: (
        data := safetensors.numpy.save({k: v for k, v in weights.items() if k != max(weights)}),
        _with_digest(data),
    ),
    "no safetensors": lambda weights, body: (b"\x80\x04N.", _with_digest(b"\x80\x04N.")),
}


def swaps(model: str, count: int, clients: int, say: Callable[[str], None]) -> Case:
    """`count` publications while `clients` generate; every fifth is corrupt."""
    adapters = ConstantAdapters(model)
    live = Live(Settings(model=model))
    faults: Counter[str] = Counter()
    spent: list[float] = []
    state: dict[str, Any] = {"requests": 0, "tokens": 0, "refused": 0, "versions": set(), "over": False}

    async def publish(version: int, corrupt: str | None) -> None:
        weights = adapters.weights(version)
        body = safetensors.numpy.save(weights)
        headers = _with_digest(body)
        if corrupt is not None:
            body, headers = CORRUPT[corrupt](weights, body)
        mode = MODES[version % len(MODES)]
        path = f"/v1/adapters/policy?scale=1&version={version}&mode={mode}"
        reply = await call(live.port, "PUT", path, body, **headers)
        if corrupt is None and reply.status == 200:
            spent.append(reply.json()["seconds"])
        elif corrupt is not None and reply.status == 400:
            state["refused"] += 1
        else:
            faults[f"{corrupt or 'a good adapter'}: {reply.status} {reply.body[:100]!r}"] += 1

    async def client(number: int) -> None:
        draw = random.Random(number)
        while not state["over"]:
            stream = draw.random() < 0.3
            body = {
                "model": "policy",
                "prompt": [draw.randrange(20, 200) for _ in range(draw.randrange(1, 40))],
                "max_tokens": draw.randrange(2, 24),
                "temperature": draw.choice([0, 0.02]),
                "ignore_eos": True,
                "return_token_ids": True,
                "stream": stream,
            }
            reply = await call(live.port, "POST", "/v1/completions", json.dumps(body).encode())
            for fault in _mixed(reply, body, adapters, state):
                faults[fault] += 1
            state["requests"] += 1

    async def storm() -> None:
        await publish(1, None)
        at_work = [asyncio.ensure_future(client(number)) for number in range(clients)]
        kinds = list(CORRUPT)
        for version in range(2, count + 2):
            await publish(version, kinds[version // 5 % len(kinds)] if version % 5 == 0 else None)
            await asyncio.sleep(random.Random(version).uniform(0.0, 0.02))
            if version % 100 == 0:
                say(f"swaps: {version} of {count}, {state['requests']} requests, {sum(faults.values())} faults")
        state["over"] = True
        await asyncio.gather(*at_work)

    try:
        start = time.perf_counter()
        asyncio.run(storm())
        seconds = time.perf_counter() - start
        left = live.holds()
    finally:
        live.stop()
    if left["pins"] or left["requests"]:
        faults[f"left behind: {left}"] += 1
    milliseconds = np.array(spent) * 1000
    return {
        "swaps": len(spent) - 1,
        "corrupt_refused": state["refused"],
        "requests": state["requests"],
        "tokens": state["tokens"],
        "versions_seen": len(state["versions"]),
        "swap_ms_median": float(np.median(milliseconds)),
        "swap_ms_p99": float(np.percentile(milliseconds, 99)),
        "seconds": seconds,
        "faults": dict(faults),
    }


def _mixed(reply: Reply, body: dict[str, Any], adapters: ConstantAdapters, state: dict[str, Any]) -> list[str]:
    """What is wrong with a completion: not there, cut short, or made by another version than it says."""
    if reply.status != 200:
        return [f"a request: {reply.status} {reply.body[:100]!r}"]
    try:
        choices = [choice for event in reply.events() for choice in event["choices"]]
        choices = choices if body["stream"] else reply.json()["choices"]
        tokens = [token for choice in choices for token in choice.get("token_ids", ())]
        final = choices[-1]
    except (ValueError, KeyError, IndexError) as error:
        return [f"an answer that cannot be read: {type(error).__name__} {reply.body[-100:]!r}"]
    versions = final.get("token_versions") or [final["policy_version"]] * len(tokens)
    state["tokens"] += len(tokens)
    state["versions"].update(versions)
    if len(tokens) != body["max_tokens"] or final["finish_reason"] != "length" or final["adapter"] != "policy":
        return [f"a completion of {len(tokens)} tokens, not {body['max_tokens']}: {final['finish_reason']}"]
    if tokens != [adapters.token(version) for version in versions]:
        return [f"mixed versions ({'stream' if body['stream'] else 'whole'}): {versions} said {tokens}"]
    return []


def drops(model: str, count: int, clients: int, say: Callable[[str], None]) -> Case:
    """`count` requests of which half are cut off; then everything must be as it was before."""
    live = Live(Settings(model=model, engine={"prefix_cache_bytes": 4 << 20}))
    prompts = [[20 + (31 * i + 7 * j) % 200 for j in range(10 + 3 * i)] for i in range(20)]
    faults: Counter[str] = Counter()
    cut: Counter[str] = Counter()

    def asked(number: int, stream: bool) -> dict[str, Any]:
        return {"prompt": prompts[number], "max_tokens": 40, "temperature": 0, "stream": stream, "ignore_eos": True}

    def said(reply: Reply, stream: bool) -> str:
        if stream:
            return "".join(choice["text"] for event in reply.events() for choice in event["choices"])
        return str(reply.json()["choices"][0]["text"])

    def cut_off(draw: random.Random, data: bytes, stream: bool) -> None:
        """In a thread: sockets that block are the plainest way to go away at a chosen point."""
        phase = draw.choice(["connect", "head", "body", "at once", "running", "answer"])
        connection = Connection(live.port)
        if phase != "connect":
            body = data.index(b"\r\n\r\n") + 4
            length = {"head": draw.randrange(1, body), "body": draw.randrange(body, len(data))}.get(phase, len(data))
            connection.send(data[:length])
        if phase == "running":
            time.sleep(draw.uniform(0.0, 0.3))
        if phase == "answer":
            connection.socket.recv(draw.randrange(1, 2000))
        cut[f"{phase}, {'stream' if stream else 'whole'}"] += 1
        if draw.random() < 0.5:
            connection.reset()
        else:
            connection.close()

    async def one(number: int, known: list[str], drop: bool) -> None:
        draw = random.Random(number)
        which, stream = draw.randrange(len(prompts)), draw.random() < 0.5
        body = asked(which, stream)
        if drop and draw.random() < 0.5:
            data = post("/v1/completions", body | {"n": draw.choice([1, 1, 4])})
            await asyncio.to_thread(cut_off, draw, data, stream)
            return
        try:
            reply = await call(live.port, "POST", "/v1/completions", json.dumps(body).encode())
            if reply.status != 200 or said(reply, stream) != known[which]:
                faults[f"a survivor: {reply.status} {reply.body[:100]!r}"] += 1
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            faults[f"a survivor: {type(error).__name__}: {error}"] += 1

    async def wave(numbers: range, known: list[str], drop: bool) -> None:
        todo = iter(numbers)

        async def client() -> None:
            for number in todo:
                await one(number, known, drop)
                if drop and number % 1000 == 999:
                    say(f"drops: {number + 1} of {count}, {sum(cut.values())} cut, {sum(faults.values())} faults")

        await asyncio.gather(*(client() for _ in range(clients)))

    async def storm() -> tuple[dict[str, int], dict[str, int], float]:
        alone = [
            await call(live.port, "POST", "/v1/completions", json.dumps(asked(i, False)).encode())
            for i in range(len(prompts))
        ]
        known = [said(reply, False) for reply in alone]
        await wave(range(count, count + 4 * clients), known, drop=False)
        await asyncio.sleep(0.5)
        before = await asyncio.to_thread(live.holds)
        await wave(range(count), known, drop=True)
        start = time.perf_counter()
        after, spent = before, 10.0
        while time.perf_counter() - start < 10.0:
            after = await asyncio.to_thread(live.holds)
            if _back(before, after):
                spent = time.perf_counter() - start
                break
            await asyncio.sleep(0.05)
        return before, after, spent

    try:
        start = time.perf_counter()
        before, after, back = asyncio.run(storm())
        seconds = time.perf_counter() - start
    finally:
        live.stop()
    if back > 2.0:
        faults[f"held {before} before and {after} {back:.0f} s after"] += 1
    return {
        "requests": count,
        "cut_off": sum(cut.values()),
        "where": dict(sorted(cut.items())),
        "before": before,
        "after": after,
        "seconds_to_baseline": back,
        "seconds": seconds,
        "faults": dict(faults),
    }


def _back(before: dict[str, int], after: dict[str, int]) -> bool:
    """Nothing is held that was not held before. Keys and values of ended requests are kept within a budget."""
    free = all(after[name] == 0 for name in ("requests", "rows", "pins", "listeners"))
    kept = after["kv_bytes"] <= before["kv_bytes"] + (4 << 20)
    return free and kept and all(after[name] <= before[name] for name in ("tasks", "descriptors"))


def _adapter(model: str) -> bytes:
    return safetensors.numpy.save(ConstantAdapters(model).weights(1))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the whole storm: minutes per case")
    parser.add_argument("--case", nargs="*", default=["swaps", "drops", "health", "mutations", "cycles", "fuzz"])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--schemathesis", default=shutil.which("schemathesis"), help="its path, if not in PATH")
    parser.add_argument("--fuzz-cases", type=int, default=None, help="instead of 10000 (with --full) or 300")
    parser.add_argument("--mutations", type=int, default=None, help="instead of 100000 (with --full) or 1000")
    parser.add_argument("--fuzz-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    full, model = options.full, options.model

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    fuzzed = options.fuzz_cases or (10_000 if full else 300)
    cases: dict[str, Callable[[], Case]] = {
        "swaps": lambda: swaps(model, 1000 if full else 60, 32 if full else 8, say),
        "drops": lambda: drops(model, 10_000 if full else 150, 64 if full else 16, say),
        "health": lambda: storm_health.health(model, 20.0 if full else 2.0, say),
        "mutations": lambda: storm_mutations.mutations(
            model, _adapter(model), options.mutations or (100_000 if full else 1000), options.fuzz_seed, say
        ),
        "cycles": lambda: storm_processes.cycles(model, 50 if full else 2, say),
        "fuzz": lambda: storm_processes.fuzz(model, fuzzed, options.fuzz_seed, options.schemathesis, say),
    }
    found: dict[str, Case] = {}
    for name in options.case:
        found[name] = cases[name]()
        print(json.dumps({name: found[name]}, indent=1), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"cases": found}, indent=1) + "\n")
    return 1 if any(case["faults"] for case in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
