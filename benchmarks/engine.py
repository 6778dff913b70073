"""The engine against mlx-lm's BatchGenerator, and against itself without its shortcuts.

    python -m benchmarks.engine [--json out.json] [--cases c1,c8] [--rounds 5]

Random Qwen3 models in float32, 3.7 million parameters unless a case says otherwise. Both sides run in this process with
the same weights, the same fast BLAS and, when compared with each other, greedy decoding; they take turns, and their
median CPU seconds count. The baseline runs with or without MLX's compiled kernels and with small or large prefill
batches, whichever suits it best. The engine's caches are dropped before every run of a throughput case.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import mlx.core as mx
import numpy as np
from mlx_lm.generate import BatchGenerator

from benchmarks.exactness import parity, swap
from benchmarks.measuring import Case, Found, against, alternate, options, report
from benchmarks.models import SIZES, random_adapter, random_model
from inference import Completion, Engine, Request, SamplingParams
from inference.forward import host_forward
from inference.loading import prepare_mlx

__all__ = ["alternate", "random_model"]  # benchmarks/training.py uses them, too

NEVER: frozenset[int] = frozenset()
VOCAB = SIZES["4m"][2]
PROMPT, NEW = 128, 64

Lengths = Sequence[int]
Texts = list[list[int]]


@cache
def small() -> Any:
    """The model of most cases."""
    return random_model(*SIZES["4m"])


def texts(count: int, lengths: int | Lengths = PROMPT, seed: int = 1) -> Texts:
    """Distinct prompts of random token ids."""
    rng = np.random.default_rng(seed)
    each = [lengths] * count if isinstance(lengths, int) else lengths
    return [rng.integers(3, VOCAB, length).tolist() for length in each]


def batch_generator(prompts: Texts, new: Lengths, rows: int, prefill: int, compiled: bool, model: Any = None) -> Texts:
    """What mlx-lm's BatchGenerator makes of the prompts, at most `rows` at once."""
    (mx.enable_compile if compiled else mx.disable_compile)()
    generator = BatchGenerator(model or small(), completion_batch_size=rows, prefill_batch_size=prefill)
    ids = generator.insert(prompts, list(new))
    tokens: dict[int, list[int]] = {i: [] for i in ids}
    running = set(ids)
    while running:
        for response in generator.next()[1]:
            tokens[response.uid].append(response.token)
            if response.finish_reason is not None:
                running.discard(response.uid)
    generator.close()
    mx.disable_compile()  # what the engine runs with
    return [tokens[i] for i in ids]


def greedy(prompts: Texts, new: Lengths) -> list[Request]:
    return [Request(p, SamplingParams(max_tokens=n, temperature=0.0, stop_ids=NEVER)) for p, n in zip(prompts, new)]


def anew(engine: Engine, requests: list[Request]) -> list[Completion]:
    """Completions by an engine that remembers nothing."""
    engine.drop_caches()
    return engine.generate(requests)


def versus_mlx_lm(prompts: Texts, new: Lengths, rows: int, repeats: int) -> Found:
    """The engine against BatchGenerator on the same prompts; the answers must be the same, token for token."""
    engine = Engine(small(), None, max_rows=rows)
    ours = partial(anew, engine, greedy(prompts, new))
    variants = {
        f"{'compiled' if compiled else 'not compiled'}, prefill batch {prefill}": partial(
            batch_generator, prompts, new, rows, prefill, compiled
        )
        for compiled in (True, False)
        for prefill in sorted({8, 32} if rows == 32 else {min(8, rows)})
    }
    said = [completion.tokens for completion in ours()]
    same = said == next(iter(variants.values()))()
    return against(ours, variants, sum(new), repeats, must={"the same tokens": same}, unit="tokens per CPU second")


def steady(rows: int, repeats: int) -> Found:
    """All requests begin together and are equally long."""
    return versus_mlx_lm(texts(rows), [NEW] * rows, rows, repeats)


def churn(repeats: int) -> Found:
    """40 requests of random lengths through 16 rows: as one leaves, another joins."""
    rng = np.random.default_rng(5)
    prompts = texts(40, rng.integers(16, 192, 40).tolist())
    return versus_mlx_lm(prompts, rng.integers(4, 64, 40).tolist(), 16, repeats)


def samplers(repeats: int) -> Found:
    """200 running requests, each with a sampling setting of its own, against the same with one setting."""
    rng = np.random.default_rng(6)
    prompts, count = texts(200, 16), 200
    engine = Engine(small(), None, max_rows=count)

    def requests(settings: Callable[[int], dict[str, Any]]) -> list[Request]:
        return [
            Request(p, SamplingParams(max_tokens=16, seed=i, stop_ids=NEVER, **settings(i)))
            for i, p in enumerate(prompts)
        ]

    def setting(i: int) -> dict[str, Any]:
        return {
            "temperature": float(rng.uniform(0.5, 1.5)),
            "top_p": float(rng.uniform(0.7, 0.99)),
            "top_k": int(rng.integers(1, 200)) if i % 2 else 0,
            "min_p": float(rng.uniform(0.001, 0.1)) if i % 3 == 0 else 0.0,
        }

    many = requests(setting)
    one = requests(lambda i: {"temperature": 0.9, "top_p": 0.9, "top_k": 50, "min_p": 0.01})
    plain = requests(lambda i: {"temperature": 0.9})
    tried = alternate({"one": partial(anew, engine, one), "unfiltered": partial(anew, engine, plain)}, 1)
    found = against(partial(anew, engine, many), {"one": partial(anew, engine, one)}, count * 16, repeats)
    return found | {"unit": "tokens per CPU second", "unfiltered": count * 16 / tried["unfiltered"]}


def group(repeats: int) -> Found:
    """Eight samples of one prompt; the baseline computes the prompt for each."""
    [prompt] = texts(1, 512)
    requests = [Request(prompt, SamplingParams(max_tokens=32, seed=i, stop_ids=NEVER)) for i in range(8)]
    engines = [Engine(small(), None), Engine(small(), None, share_rows=False, prefix_cache_bytes=0)]
    ours, alone = (partial(anew, engine, requests) for engine in engines)
    done = ours()
    same = [c.tokens for c in done] == [c.tokens for c in alone()]
    cached = sum(c.cached_tokens for c in done) / sum(c.prompt_tokens for c in done)
    found = against(ours, {"no reuse": alone}, 8 * 32, repeats, must={"the same tokens": same})
    return found | {"unit": "tokens per CPU second", "cached": cached}


def dialogues(repeats: int) -> Found:
    """Eight dialogues of eight turns: 64 tokens are said to the model, 24 by it, the whole dialogue is the prompt."""
    spoken = [texts(8, 64, seed=10 + turn) for turn in range(8)]
    engines = [Engine(small(), None), Engine(small(), None, share_rows=False, prefix_cache_bytes=0)]
    share: list[float] = []

    def talk(engine: Engine, park: bool) -> list[list[int]]:
        engine.drop_caches()
        histories: Texts = [[] for _ in range(8)]
        cached = total = 0
        for turn in spoken:
            for history, words in zip(histories, turn):
                history += words
            done = engine.generate(
                [
                    Request(h, SamplingParams(max_tokens=24, seed=i, stop_ids=NEVER), park=park)
                    for i, h in enumerate(histories)
                ]
            )
            for history, completion in zip(histories, done):
                history += completion.tokens
                cached, total = cached + completion.cached_tokens, total + completion.prompt_tokens
        if park:
            share.append(cached / total)
        return histories

    ours, alone = partial(talk, engines[0], True), partial(talk, engines[1], False)
    must = {"the same tokens": ours() == alone(), "80 % of prompt tokens cached": share[0] >= 0.8}
    found = against(ours, {"no reuse": alone}, 8 * 8 * 24, repeats, must=must)
    return found | {"unit": "tokens per CPU second", "cached": share[0]}


def mixed(rows: int, count: int, repeats: int) -> Found:
    """Rows under several adapters against as many rows under one."""
    engine = Engine(small(), None)
    for i in range(count):
        engine.publish(f"a{i}", random_adapter(small(), i), scale=2.0, version=1)
    prompts = texts(rows)

    def requests(adapters: int) -> list[Request]:
        return [
            Request(p, SamplingParams(max_tokens=NEW, temperature=0.0, stop_ids=NEVER), adapter=f"a{i % adapters}")
            for i, p in enumerate(prompts)
        ]

    one, several = (partial(anew, engine, requests(adapters)) for adapters in (1, count))
    base = alternate({"base": partial(anew, engine, greedy(prompts, [NEW] * rows))}, 1)["base"]
    found = against(several, {"one": one}, rows * NEW, 3 * repeats)  # a small difference, much noise
    return found | {"unit": "tokens per CPU second", "without adapter": rows * NEW / base}


def self_play(temperature: float, repeats: int) -> Found:
    """256 short answers to 12 prompts that begin with the same rules; the baseline gives each request its own row."""
    rules = texts(1, 80, seed=2)[0]
    prompts = [rules + rest for rest in texts(12, 20, seed=3)]
    requests = [
        Request(prompts[i % 12], SamplingParams(max_tokens=4, temperature=temperature, seed=i, stop_ids=NEVER))
        for i in range(256)
    ]
    engines = [Engine(small(), None), Engine(small(), None, share_rows=False)]
    ours, alone = (partial(anew, engine, requests) for engine in engines)
    same = float(np.mean([a.tokens == b.tokens for a, b in zip(ours(), alone())]))
    found = against(ours, {"a row each": alone}, 256 * 4, repeats, must={"the same tokens": same > 0.995})
    return found | {"unit": "tokens per CPU second", "equal": same}


def copies(size: str, rows: int, repeats: int) -> Found:
    """With transposed copies of the weights that have more outputs than inputs, against without."""
    model, most = random_model(*SIZES[size]), host_forward.COPIES
    host_forward.COPIES = 0
    plain = Engine(model, None)
    host_forward.COPIES = most
    requests = greedy(texts(rows, 32), [NEW] * rows)
    ours, without = (partial(anew, engine, requests) for engine in (Engine(model, None), plain))
    return against(ours, {"without": without}, rows * NEW, repeats) | {"unit": "tokens per CPU second"}


CASES = {
    **{
        f"c{rows}": Case(f"{rows} at once, {PROMPT} + {NEW} tokens, against BatchGenerator", bar, partial(steady, rows))
        for rows, bar in ((1, 1.5), (8, 1.3), (32, 1.05))
    },
    **{
        f"{name}{rows}": Case(f"{rows} at once, {size}, with transposed copies", 1.0, partial(copies, size, rows))
        for name, size, counts in (("copies", "4m", (1, 8, 32)), ("large", "100m", (1, 8)))
        for rows in counts
    },
    "churn": Case("40 of random length through 16 rows, against BatchGenerator", 1.25, churn),
    "samplers": Case("200 sampling settings in flight against one", 0.9, samplers),
    "group": Case("8 samples of one prompt, 512 + 32, against no reuse", 3.0, group),
    "dialogues": Case("8 dialogues of 8 turns of 64 + 24, against no reuse", 2.2, dialogues),
    "mixed": Case("8 rows under 4 adapters against 1", 0.95, partial(mixed, 8, 4)),
    "mixed16": Case("16 rows under 8 adapters against 1", 0.9, partial(mixed, 16, 8)),
    "swap": Case("89M: ms the engine is held by publishing LoRA rank 8", 5.0, swap, key="ours", most=True),
    "parity": Case("largest difference of a logprob from a training pass", 1e-4, parity, key="ours", most=True),
    "play": Case("256 short answers to 12 prompts, T = 0.1, against a row each", 1.0, partial(self_play, 0.1)),
    "playflat": Case("the same at T = 5: every answer different", 1.0, partial(self_play, 5.0)),
}


def main() -> int:
    chosen = options("The engine's benchmarks.", CASES)
    prepare_mlx()
    return 1 if report(CASES, chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
