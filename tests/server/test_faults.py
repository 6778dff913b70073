"""Faults in the middle of serving, and more clients than there is room for: only whom it concerns is told."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.storm_processes import Served
from benchmarks.wire import Live, Reply, call
from inference.engine import stepper
from inference.engine.model_runner import ModelRunner
from inference.forward import Fed
from inference.server import Settings
from inference.text import TextEncoder, TextStream

COMPLETE = "/v1/completions"
PLACES: dict[str, tuple[Any, str]] = {
    "a forward pass": (ModelRunner, "feed"),
    "a draw": (stepper, "draw_all"),
    "tokenising": (TextEncoder, "plain"),
    "text of tokens": (TextStream, "push"),
}


def ask(number: int) -> dict[str, Any]:
    draw = random.Random(number)
    return {
        "prompt": " ".join(draw.choice(["bet", "pass", "king"]) for _ in range(draw.choice([3, 30, 120]))),
        "max_tokens": draw.randrange(2, 12), "temperature": 0, "ignore_eos": True, "stream": draw.random() < 0.4,
    }  # fmt: skip


def said(reply: Reply, stream: bool) -> str:
    choices = [c for event in reply.events() for c in event["choices"]] if stream else reply.json()["choices"]
    return "".join(choice["text"] for choice in choices)


@pytest.fixture
def serving(random_model_dir: Path) -> Iterator[Live]:
    live = Live(Settings(model=str(random_model_dir)))
    yield live
    live.stop()


@pytest.mark.parametrize("stretch", [64, 8])
def test_an_echoed_prompt_that_the_model_cannot_read_is_told(
    serving: Live, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    """In the first stretch of a prompt as in a later one."""
    engine = serving.run(serving.core.engine.call(lambda engine: engine))
    forward = engine._runner.forward

    def spoilt(kv: Any, fed: Fed) -> Any:
        logits = forward(kv, fed)
        return logits * float("nan") if fed.offsets[0] + fed.tokens.shape[1] > 10 else logits

    vocab = engine._runner.vocab
    monkeypatch.setattr(engine, "_runner", SimpleNamespace(
        forward=spoilt, new_kv=forward.new_kv, prefill_tokens=stretch, vocab=vocab
    ))  # fmt: skip
    body = {"prompt": list(range(20)), "echo": True, "logprobs": 0, "max_tokens": 0}
    reply = serving.ask("POST", COMPLETE, body)
    assert reply.status == 500 and "the prompt cannot be read" in reply.json()["error"]["message"], reply
    monkeypatch.undo()
    assert serving.ask("POST", COMPLETE, body).status == 200


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_fault_ends_the_requests_it_concerns_and_no_others(
    serving: Live, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    known: dict[int, str] = {}
    counts: Counter[str] = Counter()
    injected = Counter[str]()

    async def one(number: int, certain: bool) -> None:
        body = ask(number % 24)
        reply = await call(serving.port, "POST", COMPLETE, json.dumps(body).encode())
        whole = reply.status == 200 and (not body["stream"] or reply.body.endswith(b"data: [DONE]\n\n"))
        if whole:
            text = said(reply, body["stream"])
            assert known.setdefault(number % 24, text) == text, "a fault changed the answer of another request"
        else:
            assert not certain and (reply.status == 500 or body["stream"]), reply
            assert reply.status == 500 or b"server_error" in reply.body, reply
            assert b"Traceback" not in reply.body
        counts["whole" if whole else "failed"] += 1

    async def wave(numbers: range, certain: bool) -> None:
        todo = iter(numbers)

        async def client() -> None:
            for number in todo:
                await one(number, certain)

        await asyncio.gather(*(client() for _ in range(12)))

    asyncio.run(wave(range(24), True))
    for name, (owner, attribute) in PLACES.items():
        monkeypatch.setattr(owner, attribute, _faulty(name, getattr(owner, attribute), injected))
    asyncio.run(wave(range(24, 24 + count), False))
    monkeypatch.undo()
    assert set(injected) == set(PLACES) and counts["failed"] > 0 and counts["whole"] > 24 + count // 4
    serving.until(lambda: not any(serving.holds()[name] for name in ("requests", "rows", "listeners")), 10.0)
    assert serving.core._coming == 0 and serving.ask("GET", "/health").status == 200
    asyncio.run(wave(range(24), True))


def _faulty(name: str, work: Callable[..., Any], injected: Counter[str]) -> Callable[..., Any]:
    calls = itertools.count(1)

    def faulty(*args: Any, **options: Any) -> Any:
        if next(calls) % 30 == 0:
            injected[name] += 1
            raise RuntimeError(f"injected into {name}")
        return work(*args, **options)

    return faulty


async def _flood(port: int, count: int, tokens: int) -> list[Reply]:
    body = json.dumps({"prompt": [7] * 60, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}).encode()
    return list(await asyncio.gather(*(call(port, "POST", COMPLETE, body, 300.0) for _ in range(count))))


def _check_flood(replies: list[Reply], at_least: int) -> None:
    statuses = Counter(reply.status for reply in replies)
    assert set(statuses) <= {200, 429, 503} and statuses[200] >= at_least, statuses
    assert all("retry-after" in reply.headers for reply in replies if reply.status != 200)
    assert len({reply.json()["choices"][0]["text"] for reply in replies if reply.status == 200}) == 1


@pytest.mark.slow
def test_more_clients_than_there_is_room_for_are_asked_to_come_again(random_model_dir: Path) -> None:
    live = Live(Settings(model=str(random_model_dir), max_queue=16, engine={"max_kv_bytes": 1 << 20}))
    try:
        _check_flood(asyncio.run(_flood(live.port, 150, 20)), 16)
        live.until(lambda: not any(live.holds()[name] for name in ("requests", "rows", "listeners")), 5.0)
    finally:
        live.stop()


@pytest.mark.slow
def test_two_thousand_clients_at_once_cost_a_bounded_amount_of_memory() -> None:
    served = Served("--max-queue", 64, "--max-kv-mib", 8, "--prefix-cache-mib", 8)
    try:
        port = served.ready()
        _check_flood(asyncio.run(_flood(port, 10, 100)), 10)  # what a first request allocates is not part of it
        before = _peak_mib(served.process.pid)
        _check_flood(asyncio.run(_flood(port, 2000, 100)), 64)
        assert _peak_mib(served.process.pid) - before <= 8 + 8 + 64
        assert served.status("/health") == 200
    finally:
        assert served.end() == 0


def _peak_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
