"""What row sharing and continuous batching give, side by side in one run.

`python -m benchmarks.engine [--json out.json]` builds random Qwen3 models and prints one table:

* self-play: many requests over a few distinct prompts with short answers, rows shared against one row per request, once
  for a policy that has made up its mind (low temperature) and once for a flat one (every answer different);
* distinct prompts: this engine against mlx-lm's BatchGenerator with the same weights and greedy decoding.

Each measurement alternates its two sides and takes the smallest CPU time of some repeats: wall time means little on a
machine that others use.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import qwen3

from inference import Engine, Request
from inference.loading import prepare_mlx

VOCAB = 300


def random_model(hidden: int, layers: int, vocab: int) -> Any:
    """A random float32 Qwen3."""
    mx.random.seed(0)
    config = {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": hidden * 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    model.update(tree_map(lambda w: w * 4 if w.ndim == 2 and w.shape[0] == vocab else w, model.parameters()))
    mx.eval(model.parameters())
    return model


def alternate(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Smallest CPU seconds of each side; sides take turns, after one unmeasured turn each."""
    best = dict.fromkeys(sides, float("inf"))
    for round_ in range(repeats + 1):
        for name, run in sides.items():
            start = time.process_time()
            run()
            if round_ > 0:
                best[name] = min(best[name], time.process_time() - start)
    return best


def self_play(model: Any, requests: int, prompts: int, temperature: float, repeats: int) -> dict[str, Any]:
    """Shared rows against a row per request. Prefix caches are dropped before each run."""
    rng = np.random.default_rng(0)
    rules = rng.integers(3, VOCAB, 80).tolist()
    texts = [rules + rng.integers(3, VOCAB, 20).tolist() for _ in range(prompts)]
    work = [
        Request(texts[i % prompts], max_tokens=4, temperature=temperature, seed=i, stop_ids=frozenset())
        for i in range(requests)
    ]
    engines = {"shared": Engine(model, None), "unshared": Engine(model, None, share_rows=False)}

    def run(name: str) -> list[list[int]]:
        engines[name].drop_caches()
        return [completion.tokens for completion in engines[name].generate(work)]

    same = float(np.mean([a == b for a, b in zip(run("shared"), run("unshared"))]))
    best = alternate({name: lambda name=name: run(name) for name in engines}, repeats)
    return {
        "case": f"{requests} requests, {prompts} prompts, T={temperature:g}",
        "sides": best,
        "ratio": best["unshared"] / best["shared"],
        "equal": same,
        "us per request-token": best["shared"] / (requests * 4) * 1e6,
    }


def distinct(model: Any, rows: int, prompt_tokens: int, new_tokens: int, repeats: int, vocab: int) -> dict[str, Any]:
    """Different prompts, greedy: nothing to share, so this is the plain decode loop against mlx-lm's."""
    rng = np.random.default_rng(1)
    texts = [rng.integers(3, vocab, prompt_tokens).tolist() for _ in range(rows)]
    engine = Engine(model, None)

    def ours() -> list[list[int]]:
        engine.drop_caches()
        work = [Request(t, max_tokens=new_tokens, temperature=0.0, stop_ids=frozenset()) for t in texts]
        return [completion.tokens for completion in engine.generate(work)]

    def theirs() -> list[list[int]]:
        generator = BatchGenerator(model, max_tokens=new_tokens, completion_batch_size=rows, prefill_batch_size=rows)
        ids = generator.insert(texts, [new_tokens] * rows)
        tokens: dict[int, list[int]] = {i: [] for i in ids}
        running = set(ids)
        while running:
            for response in generator.next()[1]:
                tokens[response.uid].append(response.token)
                if response.finish_reason is not None:
                    running.discard(response.uid)
        generator.close()
        return [tokens[i] for i in ids]

    same = float(np.mean([a == b for a, b in zip(ours(), theirs())]))
    best = alternate({"engine": ours, "BatchGenerator": theirs}, repeats)
    return {
        "case": f"{rows} distinct prompts of {prompt_tokens}, {new_tokens} new",
        "sides": best,
        "ratio": best["BatchGenerator"] / best["engine"],
        "equal": same,
        "us per request-token": best["engine"] / (rows * new_tokens) * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    prepare_mlx()
    model = random_model(128, 2, VOCAB)
    rows = [
        self_play(model, arguments.requests, arguments.prompts, temperature, arguments.repeats)
        for temperature in (0.1, 5.0)
    ]
    rows += [distinct(model, n, 128, 32, arguments.repeats, VOCAB) for n in (1, 8, 32)]
    print(f"random Qwen3, 2 layers of 128, float32, {platform.machine()}; CPU seconds, best of {arguments.repeats}")
    print(f"{'case':<44}{'sides':<50}{'ratio':>7}{'equal':>7}{'us/token':>10}")
    for row in rows:
        sides = "  ".join(f"{name} {seconds:.3f}" for name, seconds in row["sides"].items())
        print(
            f"{row['case']:<44}{sides:<50}{row['ratio']:>6.2f}x{row['equal']:>7.0%}{row['us per request-token']:>10.1f}"
        )
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
