"""Adapter swaps under load, and log-probabilities against a training pass: the engine cases not about speed.

A *plain training pass* runs the model itself on the whole sequence, with mlx-lm's LoRA layers if an adapter was used.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.tuner.lora import LoRALinear

from benchmarks.measuring import Found
from benchmarks.models import SIZES, random_adapter, random_model
from inference import Completion, Engine, Request, SamplingParams, clone_structure
from inference.adapters import linear_shapes

NEVER: frozenset[int] = frozenset()
SCALE = 2.0


def trained(model: Any, weights: dict[str, mx.array]) -> Any:
    """A copy of the model with mlx-lm's LoRA layers that hold the weights."""
    copy = clone_structure(model)
    for path in linear_shapes(copy):
        *way, leaf = path.split(".")
        parent = copy
        for part in way:
            parent = parent[int(part)] if part.isdigit() else parent[part]
        layer = LoRALinear.from_base(parent[leaf], r=weights[f"{path}.lora_a"].shape[1], scale=SCALE)
        layer.lora_a, layer.lora_b = weights[f"{path}.lora_a"], weights[f"{path}.lora_b"]
        parent[leaf] = layer
    return copy


def largest_difference(model: Any, prompt: list[int], completion: Completion) -> float:
    """Between the completion's log-probabilities and those of one pass over the whole sequence."""
    if not completion.tokens:
        return 0.0
    sequence = mx.array([prompt + completion.tokens])
    logits = model(sequence[:, :-1]).astype(mx.float32)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    own = mx.take_along_axis(logprobs[0], sequence[0, 1:, None], axis=-1)[len(prompt) - 1 :, 0]
    return float(np.abs(np.array(own) - np.array(completion.logprobs)).max())


def parity(repeats: int) -> Found:
    """Joins, aborts, shared and kept beginnings, adapters, samplers and parked dialogues at once; one run."""
    model = random_model(*SIZES["4m"])
    weights: dict[str | None, Any] = {f"a{i}": random_adapter(model, i, rank=4 + 2 * i) for i in range(3)}
    engine = Engine(model, None, max_rows=12)
    for name, tensors in weights.items():
        engine.publish(str(name), tensors, scale=SCALE, version=1)
    models = {None: model} | {name: trained(model, tensors) for name, tensors in weights.items()}
    rng = np.random.default_rng(8)
    vocab = SIZES["4m"][2]
    beginnings = [rng.integers(3, vocab, 48).tolist() for _ in range(3)]
    asked: dict[int, tuple[list[int], str | None]] = {}
    done: list[Completion] = []

    def ask(prompt: list[int], adapter: str | None, copies: int) -> None:
        for seed in range(copies):
            filters = {"top_p": 0.9, "top_k": 40} if rng.random() < 0.5 else {"min_p": 0.02}
            sampling = SamplingParams(
                max_tokens=int(rng.integers(4, 48)),
                temperature=float(rng.choice([0.0, 0.7, 1.0])),
                seed=seed,
                stop_ids=NEVER,
                **filters,
            )
            request = Request(prompt, sampling, adapter, park=bool(rng.random() < 0.5))
            asked[engine.submit(request)] = (prompt, adapter)

    names = list(models)
    for step in range(60):
        if step % 3 == 0:
            rest = rng.integers(3, vocab, int(rng.integers(1, 120))).tolist()
            head = beginnings[step % 3] if rng.random() < 0.7 else []
            ask(head + rest, names[step % 4], int(rng.choice([1, 1, 3])))
        if step % 7 == 6:
            engine.abort(int(rng.choice([i for i in asked if i not in {c.request_id for c in done}])))
        for completion in engine.step():
            done.append(completion)
            prompt, adapter = asked[completion.request_id]
            if completion.finish_reason == "length" and len(prompt) < 200:  # the dialogue's next turn
                ask(prompt + completion.tokens + rng.integers(3, vocab, 12).tolist(), adapter, 1)
    engine.abort_all()
    done += engine.step()
    worst = max(largest_difference(models[asked[c.request_id][1]], asked[c.request_id][0], c) for c in done if c.tokens)
    cached = sum(c.cached_tokens > 0 for c in done)
    aborted = sum(c.finish_reason == "aborted" and bool(c.tokens) for c in done)
    return {
        "ours": worst,
        "completions": len(done),
        "with cached beginnings": cached,
        "aborted midway": aborted,
        "tokens": sum(len(c.tokens) for c in done),
        "must": {
            "all features met": min(cached, aborted, len({asked[c.request_id][1] for c in done}) - 3) > 0,
            "no errors": all(c.finish_reason != "error" for c in done),
        },
    }


def swap(repeats: int) -> Found:
    """New versions of an adapter while eight requests run; every answer must be its version's own, alone."""
    model = random_model(*SIZES["100m"])
    versions = {v: random_adapter(model, v, rank=8) for v in range(1, 3 + repeats)}
    rng = np.random.default_rng(9)
    prompts = [rng.integers(3, SIZES["100m"][2], 24).tolist() for _ in range(8)]

    def request(i: int) -> Request:
        return Request(prompts[i], SamplingParams(max_tokens=8 + i, temperature=0.0, stop_ids=NEVER), adapter="a")

    engine = Engine(model, None, max_rows=8)
    engine.publish("a", versions[1], scale=SCALE, version=1)
    asked = {engine.submit(request(i)): (i, 1) for i in range(4)}
    done: list[Completion] = []
    held: list[tuple[float, float]] = []
    aside: list[float] = []
    new = list(versions)[1:]
    while engine.busy or new:
        done += engine.step()
        if new:
            version = new.pop(0)
            start = time.perf_counter()
            prepared = engine.prepare(versions[version], scale=SCALE)  # a server does this in another thread
            ready, cpu = time.perf_counter(), time.process_time()
            engine.publish("a", prepared, version=version)
            held.append((time.perf_counter() - ready, time.process_time() - cpu))
            aside.append(ready - start)
            if len(asked) < len(prompts):
                asked[engine.submit(request(len(asked)))] = (len(asked), version)
    pure = alone(model, versions, {i: version for i, version in asked.values()}, request)
    right = [c.tokens == pure[asked[c.request_id][0]] for c in done]
    return {
        "ours": statistics.median(wall for wall, _ in held) * 1e3,
        "unit": "ms of wall time",
        "cpu_ms": statistics.median(cpu for _, cpu in held) * 1e3,
        "best_ms": min(wall for wall, _ in held) * 1e3,
        "prepared_aside_ms": statistics.median(aside) * 1e3,
        "publishes": len(held),
        "requests": len(done),
        "must": {
            "every request served": len(done) == len(asked) and all(c.finish_reason == "length" for c in done),
            "each under its own version": all(c.policy_version == asked[c.request_id][1] for c in done),
            "the tokens of that version alone": all(right),
            "versions differ": len({tuple(c.tokens[:8]) for c in done}) == len(done),
        },
    }


def alone(model: Any, versions: dict[int, Any], chosen: dict[int, int], request: Any) -> dict[int, list[int]]:
    """Tokens of each request (index -> version) from engines that have seen one version only."""
    found = {}
    for version in sorted(set(chosen.values())):
        engine = Engine(model, None)
        engine.publish("a", versions[version], scale=SCALE, version=version)
        mine = [i for i, v in chosen.items() if v == version]
        found |= dict(zip(mine, (c.tokens for c in engine.generate([request(i) for i in mine]))))
    return found
