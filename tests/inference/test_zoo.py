"""Every architecture of zoo.py through the engine, against mlx-lm's own forward pass with mlx-lm's LoRA layers.

The default run has one of each kind; `-m slow` has the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
import numpy as np
import pytest
import wide_zoo
import zoo
from asking import change, query
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from test_engine import close

from inference import Completion, Engine, Request, clone_structure
from inference.forward.host_forward import HostForward
from inference.forward.mlx_forward import MlxForward
from inference.forward.solo_forward import SoloForward
from tests.lora_of_mlx import linear_to_lora_layers

ON_CPU = mx.default_device().type == mx.DeviceType.cpu
FOUR_BITS = "qwen3_moe"
"""Which of the quick kinds is checked with four bits, and not in float32 too."""
PATHS = {HostForward: "numpy", MlxForward: "mlx", SoloForward: "row by row"}
ADAPTERS = {"a": (1, 3, 1.5), "b": (2, 5, 0.5)}  # seed, rank, scale
RNG = np.random.default_rng(5)
RULES = RNG.integers(1, 95, 24).tolist()  # longer than MIN_PREFIX and than the window
PROMPTS = [RULES + RNG.integers(1, 95, n).tolist() for n in (3, 17)] + [RNG.integers(1, 95, n).tolist() for n in (1, 7)]

pytestmark = pytest.mark.usefixtures("compared_anew")


@dataclass
class Case:
    engine: Engine
    references: dict[str | None, Any]

    def expected(self, prompt: Sequence[int], tokens: Sequence[int], adapter: str | None) -> np.ndarray:
        """Log-probabilities by one pass of mlx-lm over prompt and tokens."""
        model = self.references[adapter]
        logits = model(mx.array([[*prompt, *tokens][:-1]]), cache=make_prompt_cache(model))[0, len(prompt) - 1 :]
        logits = np.array(logits.astype(mx.float32), dtype=np.float64)
        top = logits.max(-1, keepdims=True)
        logprobs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        return logprobs[np.arange(len(tokens)), list(tokens)]

    def error(self, completion: Completion, request: Request) -> float:
        assert completion.error is None
        if not completion.tokens:
            return 0.0
        expected = self.expected(request.prompt, completion.tokens, request.adapter)
        return float(np.abs(expected - completion.logprobs).max())


@contextmanager
def case(name: str, *, dtype: mx.Dtype = mx.float32, bits: int = 0, **options: Any) -> Iterator[Case]:
    """A model of the zoo served with two adapters of different rank, and mlx-lm's own models for the same."""
    model = zoo.build(name, dtype=dtype, bits=bits)
    with Engine(model, None, **{"max_rows": 3, "prefill_tokens": 16, **options}) as engine:
        references = {None: model}
        for adapter, (seed, rank, scale) in ADAPTERS.items():
            weights = zoo.adapter(engine._bank.shapes, seed, rank)
            engine.publish(adapter, weights, scale=scale, version=seed)
            references[adapter] = with_lora(model, weights, rank, scale)
        yield Case(engine, references)


def path(made: Case) -> str:
    return PATHS[type(made.engine._runner.forward)]


def with_lora(model: Any, weights: dict[str, mx.array], rank: int, scale: float) -> Any:
    copy = clone_structure(model)
    keys = {re.sub(r"^.*?\.\d+\.", "", name).rpartition(".")[0] for name in weights}
    config = {"rank": rank, "scale": scale, "dropout": 0.0, "keys": sorted(keys)}
    linear_to_lora_layers(copy, len(copy.layers), config)
    assert {n for n, _ in tree_flatten(copy.parameters()) if ".lora_" in n} == set(weights)
    copy.load_weights(list(weights.items()), strict=False)
    copy.eval()
    return copy


def jobs(park: bool = False) -> list[Request]:
    """Prompts shorter and longer than the window, under the base and both adapters; some share a beginning."""
    names = (None, "a", "b")
    return [
        query(PROMPTS[i % 4], 4 + i % 5, seed=i, stop_ids=frozenset(), adapter=names[i % 3], park=park)
        for i in range(7)
    ]


def run(engine: Engine, requests: Sequence[Request], aborted: int | None = None) -> list[Completion]:
    """Half of them join in mid-flight; one may be aborted while it runs."""
    half = len(requests) // 2
    ids = [engine.submit(r) for r in requests[:half]]
    done = [c for _ in range(3) for c in engine.step()]
    ids += [engine.submit(r) for r in requests[half:]]
    done += engine.step()
    if aborted is not None:
        engine.abort(ids[aborted])
    while engine.busy:
        done += engine.step()
    found = {c.request_id: c for c in done}
    return [found[i] for i in ids]


def check(made: Case, tolerance: float) -> float:
    """Everything a request can meet; returns the largest error seen."""
    engine, requests = made.engine, jobs(park=True)
    completions = run(engine, requests, aborted=3)
    assert completions[3].finish_reason == "aborted"
    errors = [made.error(c, r) for c, r in zip(completions, requests)]
    # The next turn of each conversation: what was said, and something new.
    turns = [
        change(r, prompt=[*r.prompt, *c.tokens, 7, 8 + i, 9], seed=100 + i)
        for i, (r, c) in enumerate(zip(requests[:5], completions))
    ]
    second = run(engine, turns)
    errors += [made.error(c, r) for c, r in zip(second, turns)]
    if engine._runner.forward.batches:
        assert sum(c.cached_tokens for c in second) > 100
    continuations = [RNG.integers(1, 95, n).tolist() for n in (1, 6, 2, 15)]
    for adapter in made.references:
        scores = engine.score(PROMPTS, continuations, adapter)
        errors += [
            float(np.abs(score - made.expected(prompt, c, adapter)).max())
            for prompt, c, score in zip(PROMPTS, continuations, scores)
        ]
    logits = engine.next_logits(PROMPTS, "a")
    reference = made.references["a"]
    for prompt, row in zip(PROMPTS, logits):
        expected = np.array(reference(mx.array([prompt]), cache=make_prompt_cache(reference))[0, -1].astype(mx.float32))
        errors.append(float(np.abs(expected - row).max()))
    assert max(errors) <= tolerance
    return max(errors)


def alone(made: Case) -> None:
    """A request gets what it would get by itself, and adapters matter."""
    requests = jobs()
    together = run(made.engine, requests)
    made.engine.drop_caches()
    for request, completion in list(zip(requests, together))[1:3]:
        [single] = made.engine.generate([request])
        assert close(single, completion)
    assert np.abs(made.expected(PROMPTS[0], PROMPTS[1], None) - made.expected(PROMPTS[0], PROMPTS[1], "a")).max() > 0.1


@pytest.mark.quick(*(name for name, kind in zoo.ZOO.items() if kind.quick and name != FOUR_BITS))
@pytest.mark.parametrize("name", zoo.ZOO)
def test_float32(name: str) -> None:
    with case(name) as made:
        assert path(made) == zoo.ZOO[name].path or not ON_CPU
        check(made, 1e-4)
        alone(made)


@pytest.mark.quick(FOUR_BITS)  # qwen2: test_qwen2_four_bits.py
@pytest.mark.parametrize("name", zoo.ZOO)
def test_four_bits(name: str) -> None:
    """Scales in float32, so what is computed from them is as exact as before."""
    with case(name, bits=4) as made:
        assert any(hasattr(m, "scales") for m in made.engine.model.modules())
        assert path(made) == zoo.ZOO[name].quantised_path or not ON_CPU
        check(made, 1e-4)


# Near 16 neighbouring bfloat16 logits are 0.125 apart; some of what is computed in another order lands on the next.
# A recurrence carries its rounding along.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("qwen2", 0.25), ("gemma3_text", 0.25), ("llama", 0.25), ("phi3", 0.25), ("mamba2", 0.5)],
)
def test_bfloat16(name: str, tolerance: float) -> None:
    """Given as it is (`loading.load` widens it on a CPU), with adapters in bfloat16 too."""
    with case(name, dtype=mx.bfloat16) as made:
        assert path(made) != "numpy" and not getattr(made.engine._runner.forward, "own_decoder", False)
        check(made, tolerance)
        shapes = made.engine._bank.shapes
        for adapter, (seed, rank, scale) in ADAPTERS.items():
            halves = {n: w.astype(mx.bfloat16) for n, w in zoo.adapter(shapes, seed, rank).items()}
            made.engine.publish(adapter, halves, scale=scale, version=9)
        assert max(made.error(c, r) for c, r in zip(run(made.engine, jobs()), jobs())) <= tolerance


@pytest.mark.quick("jamba")
@pytest.mark.parametrize("name", wide_zoo.WIDE)
def test_the_rest_of_the_architectures(name: str) -> None:
    with case(name) as made:
        assert path(made) == wide_zoo.WIDE[name].path or not ON_CPU
        check(made, 1e-4)


def test_no_architecture_is_forgotten() -> None:
    """A new version of mlx-lm brings new ones: build them small in wide_zoo.py, or say there why that cannot be."""
    folder = Path(mlx_lm.models.__file__).parent
    there = {file.stem for file in folder.glob("*.py") if "\nclass Model(" in file.read_text(encoding="utf-8")}
    assert there <= {kind.module for kind in zoo.kinds().values()} | set(wide_zoo.LEFT_OUT)


def test_the_table_in_the_docs_is_this_zoo() -> None:
    text = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \| ([a-z ]+) \|$", text, re.MULTILINE)
    assert rows == [(name, kind.path, kind.quantised_path) for name, kind in zoo.ZOO.items()]
