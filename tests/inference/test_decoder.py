"""The engine's own forward pass: used where it fits, with the model's numbers, and nowhere else."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import gemma, llama, qwen2, qwen3

from inference import Engine, Request

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
    mx.eval(model.parameters())
    return model


@pytest.mark.parametrize("module", [llama, qwen2, qwen3])
def test_it_gives_the_models_numbers(module: Any) -> None:
    model = build(module)
    requests = [Request(p, max_tokens=5, seed=i, stop_ids=frozenset()) for i, p in enumerate(PROMPTS)]
    continuations = [p[::-1][: i + 2] for i, p in enumerate(PROMPTS)]
    with Engine(model, None) as own, Engine(model, None) as plain:
        assert own._runner.own_forward
        plain._runner.own_forward = False
        np.testing.assert_allclose(own.next_logits(PROMPTS), plain.next_logits(PROMPTS), atol=2e-5)
        for a, b in zip(own.score(PROMPTS, continuations), plain.score(PROMPTS, continuations), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        for x, y in zip(own.generate(requests), plain.generate(requests), strict=True):
            assert x.tokens == y.tokens
            np.testing.assert_allclose(x.logprobs, y.logprobs, atol=1e-5)


def test_a_model_that_only_looks_alike_keeps_its_own_call() -> None:
    """Gemma has modules of the same names, but GELU, another norm and scaled embeddings."""
    model = build(gemma)
    with Engine(model, None) as engine:
        assert not engine._runner.own_forward
        logits = engine.next_logits([PROMPTS[0]])[0]
    np.testing.assert_allclose(logits, np.array(model(mx.array([PROMPTS[0]]))[0, -1]), atol=1e-4)
