"""Layers whose kernel has no gradient are trained by their other path, and played by their kernel."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models import gated_delta

from inference import Engine, Request, SamplingParams
from inference.forward import host_forward
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.config import sections
from legos_train.loss.batch import Batch, pack
from legos_train.model.gradients import loss_and_grad
from legos_train.model.policy import LoRAPolicy
from legos_train.model.training_mode import modules_that_ask
from tests.train.helpers import plain_loss

_BASE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.5,
}
MODELS: dict[str, dict[str, Any]] = {
    "qwen3_5": {"full_attention_interval": 2},
    "olmo_hybrid": {"linear_allow_neg_eigval": True, "layer_types": ["linear_attention", "full_attention"]},
    "kimi_linear": {
        "linear_attn_config": {
            "kda_layers": [1],
            "full_attn_layers": [2],
            "num_heads": 2,
            "head_dim": 16,
            "short_conv_kernel_size": 4,
        },
        "model_max_length": 128,
        "num_experts": 0,
        "moe_intermediate_size": 32,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "num_key_value_heads": 2,
    },
}


def build(name: str) -> Any:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = {**_BASE, **MODELS[name], "model_type": name}
    if hasattr(module, "TextModelArgs"):
        config = {"model_type": name, "text_config": config}
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(config))
    mx.eval(model.parameters())
    model.eval()
    return model


class Kernel:
    """What Metal does with `gated_delta_update`: a kernel without a gradient, unless the layer is in training mode."""

    def __init__(self) -> None:
        self.original = gated_delta.gated_delta_update
        self.ran = 0

    def __call__(self, *args: Any, use_kernel: bool = True, **options: Any) -> Any:
        if not use_kernel:
            return self.original(*args, **options)
        self.ran += 1

        @mx.custom_function
        def kernel(*arrays: mx.array) -> Any:
            return self.original(*arrays, *args[len(arrays) :], **options)

        @kernel.vjp
        def _(*_: Any) -> Any:
            raise ValueError("[Primitive::vjp] Not implemented for CustomKernel.")

        return kernel(*args[:7])


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Kernel:
    kernel = Kernel()
    module = importlib.import_module(f"mlx_lm.models.{request.getfixturevalue('name')}")
    monkeypatch.setattr(module, "gated_delta_update", kernel)
    monkeypatch.setattr(host_forward, "fits", lambda model: False)  # as on Metal
    return kernel


def batch(prompt: list[int], answer: list[int], logprobs: list[float]) -> Batch:
    turn = Turn((), "", 0.0, None, prompt, answer, logprobs)
    return pack([Episode("test", 0, {}, {"a": Trajectory("a", "a", turns=[turn])})], [{"a": np.ones(1)}])


@pytest.mark.parametrize("name", list(MODELS))
def test_a_kernel_without_a_gradient_plays_but_does_not_train(name: str, kernel: Kernel) -> None:
    model = build(name)
    policy = LoRAPolicy(model, sections.LoRASettings(rank=2), seed=0)
    with Engine(model, None) as engine:
        assert not any(module.training for module in modules_that_ask(engine.model))
        kernel.ran = 0
        prompt = list(range(1, 13))
        played = engine.generate([Request(prompt, SamplingParams(max_tokens=3, seed=1))])[0]
        assert kernel.ran
    kernel.ran = 0
    _, grads, numbers = loss_and_grad(policy, batch(prompt, played.tokens, played.logprobs), plain_loss())
    assert not kernel.ran
    assert numbers["mismatch_max"] < 1e-4
    learned = [name for name, grad in grads.items() if mx.any(grad != 0)]
    assert any("linear_attn" in name or ".0.self_attn" in name for name in learned)
    assert all(module.training for module in modules_that_ask(policy.model))
    assert not any(module.training for module in model.modules())


class _Dropping(nn.Module):
    """A layer with dropout, and one whose output depends on the mode although it should not."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def __call__(self, x: mx.array) -> mx.array:
        return self.dropout(x) * (2.0 if self.training else 1.0)


def test_dropout_stays_off() -> None:
    layer = _Dropping()
    layer.eval()
    assert modules_that_ask(layer) == [layer]


def test_a_mode_that_changes_the_logits_stays_off() -> None:
    model = build("qwen3_5")
    model.language_model.model.norm = nn.Sequential(model.language_model.model.norm, _Dropping())
    model.eval()
    policy = LoRAPolicy(model, sections.LoRASettings(rank=2), seed=0)
    assert not any(module.training for module in modules_that_ask(policy.model))
    assert any("stay in evaluation mode" in note and "_Dropping" in note for note in policy.notes)
