"""The engine's own forward pass: used where it fits, with the model's numbers, and nowhere else."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from asking import query
from mlx import nn
from mlx_lm.models import gemma, llama, qwen2, qwen3

from inference import Engine
from inference.adapters import AdapterBank, linear_shapes
from inference.forward import fastblas, few_rows, host_forward
from inference.forward.host_attention import AttentionBlock
from inference.forward.host_forward import HostForward
from inference.forward.host_linear import Linear
from inference.forward.mlx_forward import Fed, MlxForward

COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "vocab_size": 90,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
PROMPTS = [[5 + (7 * i * j) % 80 for j in range(1, 4 + 5 * i)] for i in range(1, 6)]

pytestmark = pytest.mark.skipif(mx.default_device().type != mx.DeviceType.cpu, reason="Metal and CUDA do not use it")


def build(module: Any, **extra: Any) -> Any:
    mx.random.seed(3)
    model = module.Model(module.ModelArgs.from_dict({**COMMON, "model_type": module.__name__.split(".")[-1], **extra}))
    rng = np.random.default_rng(3)
    for name, norm in model.named_modules():
        if name.endswith("norm"):  # as they are made, all weights are 1
            norm.weight = mx.array(rng.uniform(0.8, 1.2, norm.weight.shape).astype(np.float32))
    mx.eval(model.parameters())
    return model


def adapter(model: Any, seed: int) -> dict[str, mx.array]:
    rng = np.random.default_rng(seed)
    shapes = linear_shapes(model)
    return {
        f"{path}.{leaf}": mx.array(rng.normal(0, 0.3, shape).astype(np.float32))
        for path, (width, out) in shapes.items()
        for leaf, shape in (("lora_a", (width, 2 + seed)), ("lora_b", (2 + seed, out)))
    }


def plain_call(engine: Engine, own_decoder: bool) -> None:
    """Makes the engine run the model in MLX: by decoder.py, or by the model's own call."""
    runner = engine._runner
    forward = runner.forward
    assert isinstance(forward, HostForward)
    runner.forward = mlx = MlxForward(engine.model, engine._bank)
    assert mlx.own_decoder
    mlx.own_decoder = own_decoder
    engine._stepper.kv = runner.new_kv()


@pytest.mark.quick
@pytest.mark.parametrize("own_decoder", [True, False])
@pytest.mark.parametrize("module", [llama, qwen2, qwen3])
def test_it_gives_the_models_numbers(module: Any, own_decoder: bool) -> None:
    """Without adapters, and with two of them in one batch, of different ranks, beside the base."""
    model = build(module)
    names = [None, "a", "b"]
    requests = [
        query(p, max_tokens=5, seed=i, stop_ids=frozenset(), adapter=names[i % 3])
        for i, p in enumerate([*PROMPTS, *PROMPTS[1:]])
    ]
    continuations = [p[::-1][: i + 2] for i, p in enumerate(PROMPTS)]
    with Engine(model, None) as own, Engine(model, None) as plain:
        plain_call(plain, own_decoder)
        for engine in (own, plain):
            engine.publish("a", adapter(model, 1), scale=0.5, version=1)
            engine.publish("b", adapter(model, 2), scale=2.0, version=1)
        np.testing.assert_allclose(own.next_logits(PROMPTS), plain.next_logits(PROMPTS), atol=2e-5)
        for a, b in zip(own.score(PROMPTS, continuations), plain.score(PROMPTS, continuations), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)
        for x, y in zip(own.generate(requests), plain.generate(requests), strict=True):
            assert x.tokens == y.tokens
            np.testing.assert_allclose(x.logprobs, y.logprobs, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 7, 24, 25])
def test_few_and_many_rows_are_multiplied_alike(rows: int) -> None:
    rng = np.random.default_rng(rows)
    linear = nn.Linear(64, 1920)
    x = rng.normal(size=(rows, 64)).astype(np.float32)
    np.testing.assert_allclose(Linear(linear)(x, []), np.array(linear(mx.array(x))), atol=1e-5)
    if rows in (7, 24):
        assert 1920 % few_rows.slice_size(rows, 1920, 64) == 0


@pytest.mark.parametrize("rows", [2, 8, 17, 32, 33])
@pytest.mark.parametrize("threads", [2, 3])
def test_products_divided_among_threads(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastblas, "threads", lambda: threads)
    parts: list[int] = []
    sliced = few_rows._sliced
    monkeypatch.setattr(few_rows, "_sliced", lambda x, slices, n: (parts.append(n), sliced(x, slices, n))[1])
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 640)).astype(np.float32)
    weight = rng.normal(size=(1920, 640)).astype(np.float32)
    np.testing.assert_allclose(few_rows.product(x, weight, weight.T), x @ weight.T, atol=1e-3)
    assert parts == ([threads] if rows <= 32 else [])


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("module", [llama, qwen2, qwen3])
def test_copies_of_weights_give_the_same_numbers(module: Any, packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copies, those of wide weights, and those of queries, keys and values too; some rows have an adapter."""
    monkeypatch.setattr(few_rows, "always_packs", lambda: packs)
    model = build(module, intermediate_size=24)
    weights, bank = adapter(model, 1), AdapterBank(model)
    bank.install("a", bank.prepare(weights, scale=1.0), version=1)
    users = [bank.base, bank.find("a"), bank.base]
    tokens = np.arange(12, dtype=np.int32).reshape(3, 4)
    results = []
    for copies, most in enumerate((0, (90 + 3 * 24) * 32 * 4, host_forward.COPIES)):
        monkeypatch.setattr(host_forward, "COPIES", most)
        forward = HostForward(model, 90)
        kv = forward.new_kv()
        prompts, again = Fed(0, [0] * 3, tokens[:, :3], users), Fed(0, [3] * 3, tokens[:, 3:], users)
        alone = Fed(1, [4], tokens[1:2, :1], users[1:2])
        results.append([forward(kv, fed) for fed in (prompts, again, alone)])
        block = forward._blocks[0]
        assert isinstance(block, AttentionBlock)
        kept = [layer.transposed.flags.c_contiguous for layer in (forward.head, block.o, block.mlp._down)]
        assert kept == [most > 0, copies == 2 and not packs, most > 0]
        assert (block.qkv._transposed is not None) == (copies == 2)
    for plain, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_allclose(other, plain, atol=2e-5)


def test_weights_are_used_where_they_lie() -> None:
    model = build(qwen3)
    with Engine(model, None) as engine:
        forward = engine._runner.forward
        assert isinstance(forward, HostForward)
        theirs = np.asarray(model.model.layers[0].mlp.up_proj.weight)
        assert np.shares_memory(forward._blocks[0].mlp._up._weight, theirs)


@pytest.mark.parametrize("extra", [{"rope_traditional": True}, {"rope_scaling": {"type": "linear", "factor": 2.0}}])
def test_other_rotary_embeddings(extra: dict[str, Any]) -> None:
    model = build(llama, **extra)
    with Engine(model, None) as engine:
        logits = engine.next_logits([PROMPTS[2]])[0]
    np.testing.assert_allclose(logits, np.array(model(mx.array([PROMPTS[2]]))[0, -1]), atol=1e-4)


def test_a_model_that_only_looks_alike_keeps_its_own_call() -> None:
    """Gemma has modules of the same names, but GELU, another norm and scaled embeddings."""
    model = build(gemma)
    with Engine(model, None) as engine:
        forward = engine._runner.forward
        assert isinstance(forward, MlxForward) and not forward.own_decoder
        logits = engine.next_logits([PROMPTS[0]])[0]
    np.testing.assert_allclose(logits, np.array(model(mx.array([PROMPTS[0]]))[0, -1]), atol=1e-4)
