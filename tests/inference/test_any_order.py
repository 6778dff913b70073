"""Requests, steps, aborts and publications in any order: every completion is what its version gives alone."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest
import zoo
from asking import query
from test_engine import close

from inference import Completion, Engine, Request

KINDS = ["llama", "gemma3_text", "qwen3_5", "mamba2"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_rows": 2},
    {"share_rows": False},
    {"prefix_cache_bytes": 0},
    {"prefill_tokens": 16, "admit_tokens": 8},
    {"lookahead": "on"},
    {"max_kv_bytes": 400_000},
]
STOPS = frozenset({3, 5, 7})


class Story:
    """One engine, two adapters, and what has been asked of it."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.rng = engine, random.Random(seed)
        self.prompts = [self.tokens(self.rng.choice([1, 3, 17, 40])) for _ in range(4)]
        self.prompts += [prompt + self.tokens(self.rng.choice([1, 20])) for prompt in self.prompts]
        self.weights: dict[tuple[str, int], dict[str, mx.array]] = {}
        self.version = {"a": 0, "b": 0}
        self.asked: dict[int, Request] = {}
        self.done: dict[int, Completion] = {}
        for name in self.version:
            self.publish(name, "pin")

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(8, 90) for _ in range(count)]

    def publish(self, name: str, mode: Any) -> None:
        version = self.version[name] = self.version[name] + 1
        weights = zoo.adapter(self.engine._bank.shapes, seed=self.rng.randrange(10_000), rank=2)
        self.weights[name, version] = weights
        self.engine.publish(name, weights, scale=1.0, version=version, mode=mode)

    def submit(self) -> None:
        choose = self.rng.choice
        request = query(
            choose(self.prompts),
            choose([1, 2, 6, 15]),
            seed=choose([1, 2, self.rng.randrange(1 << 40)]),
            temperature=choose([0.0, 1.0, 1.5]),
            speculate=choose([0, 0, 4, 8]),
            top_k=choose([0, 0, 5]),
            stop_ids=choose([frozenset(), STOPS]),
            adapter=choose([None, "a", "b"]),
            park=choose([True, False]),
        )
        self.asked[self.engine.submit(request)] = request

    def step(self) -> None:
        self.done |= {one.request_id: one for one in self.engine.step()}
        if self.done:  # and the next turn of a conversation
            last = self.rng.choice(list(self.done.values()))
            self.prompts[self.rng.randrange(8)] = [*self.asked[last.request_id].prompt, *last.tokens, 8][-120:]

    def happens(self) -> None:
        what = self.rng.random()
        running = [number for number in self.asked if number not in self.done]
        if what < 0.35:
            self.submit()
        elif what < 0.85:
            self.step()
        elif what < 0.92:
            self.publish(self.rng.choice("ab"), self.rng.choice(["pin", "wait", "keep", "abort"]))
        elif running:
            self.engine.abort(self.rng.choice(running))


@pytest.mark.quick("llama-0", "qwen3_5-5")
@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_events(kind: str, number: int) -> None:
    model = zoo.build(kind)
    alone = Engine(model, None, prefix_cache_bytes=0, share_rows=False, lookahead="off")
    with Engine(model, None, **OPTIONS[number]) as engine:
        story = Story(engine, number)
        for _ in range(80):
            story.happens()
        while engine.busy:
            story.step()
        assert story.done.keys() == story.asked.keys() and not engine._tickets and not engine._stepper.aborts
        assert not any(one.running for one in engine.adapters().values())
    compared = 0
    for request_id, found in story.done.items():
        request = story.asked[request_id]
        if found.token_versions is None and found.finish_reason != "aborted":  # else of several versions, or cut
            name = None
            if found.adapter is not None:
                name = "same"
                weights = story.weights[found.adapter, found.policy_version]
                alone.publish(name, weights, scale=1.0, version=None)
            asked = Request(request.prompt, request.sampling, name)
            assert close(found, alone.generate([asked])[0]), (request_id, request)
            compared += 1
    assert compared > 5
