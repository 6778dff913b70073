"""Lookahead on against off: the gain from hiding host work behind the device, and the cost of guessing tokens.

    python -m benchmarks.lookahead [--cases tiny8,4m32,...] [--rounds 3]

Both sides run the model's own call on MLX's stream, which has its own thread on a CPU: the numpy path, which a CPU
would normally use for these models, is synchronous and has nothing to hide. Sampling at temperature 1, with the same
seeds on both sides, which take turns. The ratio is of wall time: hidden work shows only there, and only if a core is
idle.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache, partial
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.measuring import Case, Found, options, report, rounds
from benchmarks.models import SIZES, random_model
from inference import Engine, Request, SamplingParams, load
from inference.engine.flight import Flight
from inference.forward import decoder

NEW = 64


@cache
def model(size: str) -> Any:
    """The bundled model, or a random one."""
    return load("tiny")[0] if size == "tiny" else random_model(*SIZES[size])


@cache
def engine(size: str, lookahead: Any) -> Engine:
    """An engine over the model's own call, as on Metal and CUDA."""
    fits, decoder.fits = decoder.fits, lambda model: False
    try:
        return Engine(model(size), None, max_rows=64, lookahead=lookahead)
    finally:
        decoder.fits = fits


def rows(count: int) -> list[Request]:
    """Prompts of different lengths, 64 new tokens each."""
    rng = np.random.default_rng(count)
    prompts = [rng.integers(3, 290, n).tolist() for n in rng.integers(64, 128, count)]
    return [Request(p, SamplingParams(max_tokens=NEW, seed=i, stop_ids=frozenset())) for i, p in enumerate(prompts)]


def short(count: int) -> list[Request]:
    """As in self-play on Kuhn poker: a dozen prompts, asked many times over, and short answers that end anywhere."""
    rng = np.random.default_rng(count)
    prompts = [rng.integers(3, 290, 90).tolist() for _ in range(12)]
    lengths = rng.integers(4, 10, count).tolist()
    return [
        Request(prompts[i % 12], SamplingParams(max_tokens=n, seed=i, stop_ids=frozenset()))
        for i, n in enumerate(lengths)
    ]


def played(engine: Engine, requests: list[Request]) -> list[list[int]]:
    """The answers, from a new cache; 64 requests at a time."""
    engine.drop_caches()
    waiting, ids, done = list(requests), list[int](), dict[int, list[int]]()
    while waiting or engine.busy:
        while waiting and len(ids) - len(done) < 64:
            ids.append(engine.submit(waiting.pop(0)))
        done.update((c.request_id, c.tokens) for c in engine.step())
    return [done[i] for i in ids]


def compared(size: str, requests: list[Request], repeats: int) -> Found:
    """Wall time without lookahead over that with it, the same of CPU time, and the share of members fed in vain."""
    members = stale = 0
    confirm = Flight.confirm

    def counted(self: Flight, *arguments: Any) -> bool:
        nonlocal members, stale
        found = confirm(self, *arguments)
        members, stale = members + len(self.members), stale + sum(member.row is None for member in self.members)
        return found

    cpu: dict[str, list[float]] = {"on": [], "off": []}
    host: list[float] = []

    def side(setting: str) -> None:
        start, thread = time.process_time(), time.thread_time()
        played(engine(size, setting), requests)
        cpu[setting].append(time.process_time() - start)
        if setting == "off":
            host.append((time.thread_time() - thread) / cpu[setting][-1])

    Flight.confirm = counted  # type: ignore[method-assign]
    try:
        same = played(engine(size, "on"), requests) == played(engine(size, "off"), requests)
    finally:
        Flight.confirm = confirm  # type: ignore[method-assign]
    wall = rounds({"on": partial(side, "on"), "off": partial(side, "off")}, repeats, time.perf_counter)
    tokens = sum(request.sampling.max_tokens or 0 for request in requests)
    return {
        "ours": tokens / median(wall["on"]),
        "baseline": tokens / median(wall["off"]),
        "ratio": median(off / on for on, off in zip(wall["on"], wall["off"], strict=True)),
        "cpu_ratio": median(off / on for on, off in zip(cpu["on"], cpu["off"], strict=True)),
        "host_share": median(host),
        "fed_in_vain": stale / max(members, 1),
        "must": {"the same tokens": same},
    }


CASES = {
    f"{size}{name}": Case(f"{size}, {about}", 1.0, partial(compared, size, requests))
    for size in ("tiny", "4m", "100m")
    for name, about, requests in (
        ("8", "8 rows of 64 tokens", rows(8)),
        ("32", "32 rows of 64 tokens", rows(32)),
        ("kuhn", "64 short rows", short(256)),
    )
}

if __name__ == "__main__":
    sys.exit(report(CASES, options(__doc__ or "", CASES)))
