"""Quantised weights on a CPU: as plain ones, or unpacked as they are used; the numbers are those of the packed ones."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import SwitchLinear

import inference
from inference import Engine, Request, SamplingParams, load, unpacking
from inference.adapters import linear_shapes
from inference.forward import heap
from inference.loading import find_model

PROMPT = [5, 9, 40, 7, 300, 12, 11, 80]
KINDS = (nn.QuantizedLinear, nn.QuantizedEmbedding)


def mixed(path: str, module: Any) -> Any:
    """Eight bits and smaller groups here and there, one layer not quantised at all."""
    if not hasattr(module, "to_quantized") or path.endswith("o_proj"):
        return False
    return {"group_size": 32, "bits": 8} if "down_proj" in path or "embed" in path else {"group_size": 64, "bits": 4}


@pytest.fixture(scope="module", params=["4", "8", "mixed", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model, quantised as mlx-lm does it, in half precision."""
    import mlx_lm.utils

    where, tiny = tmp_path_factory.mktemp("quantised"), find_model("tiny")
    shutil.copytree(tiny, where, dirs_exist_ok=True)
    model, _, info = load("tiny")
    config = dict(info.config)
    if request.param == "untied":
        config["tie_word_embeddings"] = False
        model.lm_head = nn.Linear(128, 2002, bias=False)
        model.args.tie_word_embeddings = False
    model.set_dtype(mx.bfloat16)
    bits = 8 if request.param == "8" else 4
    rule = mixed if request.param == "mixed" else None
    model, config = mlx_lm.utils.quantize_model(model, config, 64, bits, quant_predicate=rule)
    mx.save_safetensors(str(where / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (where / "config.json").write_text(json.dumps(config))
    return where


def loaded(folder: Path, how: str, patch: pytest.MonkeyPatch) -> Any:
    """The model packed, plain, or unpacked as it is used because memory is short."""
    patch.setattr(unpacking, "free_memory", lambda: 0 if how == "used" else 1 << 40)
    return load(folder, dequantize="off" if how == "off" else "auto")


def quantised(model: nn.Module) -> set[type]:
    return {type(module) for module in model.modules() if isinstance(module, KINDS)}


def adapter(model: nn.Module) -> dict[str, mx.array]:
    keys = iter(mx.random.split(mx.random.key(3), 64))
    weights = {}
    for path, (width, out) in sorted(linear_shapes(model).items()):
        weights[f"{path}.lora_a"] = mx.random.normal((width, 4), key=next(keys)) * 0.1
        weights[f"{path}.lora_b"] = mx.random.normal((4, out), key=next(keys)) * 0.1
    return weights


@pytest.mark.quick("mixed")
def test_all_ways_of_loading_give_the_same_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, digests, weights = {}, set(), {}
    asked: list[int] = []
    huge = heap.in_huge_pages
    monkeypatch.setattr(heap, "in_huge_pages", lambda count: (asked.append(count), huge(count))[1])
    for how in ("off", "plain", "used"):
        asked.clear()
        model, tokenizer, info = loaded(folder, how, monkeypatch)
        assert [count > 100_000 for count in asked][:-1] == [True] * (how == "plain"), "the last are widened weights"
        packed = {
            "off": set(KINDS),
            "plain": set(),
            "used": {unpacking.UnpackedLinear, unpacking.UnpackedEmbedding},
        }[how]
        assert quantised(model) == packed
        assert {a.dtype for _, a in tree_flatten(model.parameters())} <= {mx.float32, mx.uint32}
        weights = weights or adapter(model)
        digests.add(info.digest)
        with Engine(model, tokenizer) as engine:
            engine.publish("mine", weights, scale=1.0, version=1)
            sampling = SamplingParams(max_tokens=6, seed=1, stop_ids=frozenset())
            base, mine = engine.generate([Request(PROMPT, sampling), Request(PROMPT, sampling, adapter="mine")])
            assert engine.path == ("numpy" if how == "plain" else "mlx")
            found[how] = (base.tokens + mine.tokens, base.logprobs + mine.logprobs)
    assert found["off"][0] == found["plain"][0] == found["used"][0]
    for how in ("plain", "used"):
        assert np.abs(np.subtract(found[how][1], found["off"][1])).max() < 1e-4
    assert len(digests) == 1


@pytest.mark.quick(1)
def test_a_gradient_is_that_of_the_packed_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from legos_train.config.sections import LoRASettings
    from legos_train.model.policy import LoRAPolicy

    tokens, gradients, start = mx.array([PROMPT]), {}, {}
    for how in ("off", "plain", "used"):
        policy = LoRAPolicy(loaded(folder, how, monkeypatch)[0], LoRASettings(rank=4), seed=0)
        start = start or {
            n: mx.random.normal(w.shape, key=mx.random.key(1)) * 0.1 for n, w in policy.trainable().items()
        }
        policy.load(start)

        def loss(policy: LoRAPolicy = policy) -> mx.array:
            return nn.losses.cross_entropy(policy.model(tokens[:, :-1]), tokens[:, 1:]).mean()

        value, tree = nn.value_and_grad(policy.model, loss)()
        gradients[how] = {"loss": value, **dict(tree_flatten(tree))}
    for how in ("plain", "used"):
        for name, expected in gradients["off"].items():
            assert mx.allclose(gradients[how][name], expected, rtol=1e-3, atol=1e-5), (how, name)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_unpacking_is_that_of_mlx(bits: int, group: int) -> None:
    layer = nn.Linear(256, 72)
    layer.bias = mx.random.normal((72,))
    packed = nn.QuantizedLinear.from_linear(layer, group, bits)
    model = nn.Sequential(packed)
    unpacking.unpack(model, "on")
    expected = mx.dequantize(packed.weight, packed.scales, packed.biases, group, bits)
    assert type(model.layers[0]) is nn.Linear
    assert mx.array_equal(model.layers[0].weight, expected) and mx.array_equal(model.layers[0].bias, layer.bias)


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_experts_and_heads_of_a_latent_attention_are_unpacked_too(mode: str) -> None:
    group = 32
    model = nn.Sequential(
        SwitchLinear(64, 96, 3).to_quantized(group, 4, mode), MultiLinear(64, 32, 2).to_quantized(group, 4, mode)
    )
    experts, heads = model.layers
    x = mx.random.normal((5, 1, 1, 64))
    chosen = mx.array([[0], [2], [1], [1], [0]])
    expected = experts(x, chosen), heads(x[:, 0, 0][None, :2].swapaxes(0, 1))
    unpacking.unpack(model, "on")
    assert [type(layer) for layer in model.layers] == [SwitchLinear, MultiLinear]
    found = model.layers[0](x, chosen), model.layers[1](x[:, 0, 0][None, :2].swapaxes(0, 1))
    for one, other in zip(found, expected, strict=True):
        assert mx.allclose(one, other, atol=1e-4)


def test_a_layer_that_stands_at_two_places_stays_one() -> None:
    layer = nn.QuantizedLinear(64, 64)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    unpacking.unpack(model, "on")
    assert type(model.layers[0]) is nn.Linear and model.layers[0] is model.layers[2]


@pytest.mark.parametrize("tokens", [1, 5, 300])
def test_few_and_many_tokens_give_the_same_when_a_layer_is_unpacked_in_use(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "free_memory", lambda: 0)
    model = nn.Sequential(nn.QuantizedLinear(64, 96))
    x = mx.random.normal((2, tokens, 64))
    value, gradient = mx.value_and_grad(lambda x: model(x).square().sum())(x)
    unpacking.unpack(model)
    assert type(model.layers[0]) is unpacking.UnpackedLinear
    found, slope = mx.value_and_grad(lambda x: model(x).square().sum())(x)
    assert mx.allclose(found, value, rtol=1e-4) and mx.allclose(slope, gradient, atol=1e-4)


def test_the_log_says_what_it_takes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for free, said in ((1 << 40, "0.00 GiB of quantised weights take 0.01 GiB as float32"), (0, "when it is used")):
        caplog.clear()
        monkeypatch.setattr(unpacking, "free_memory", lambda free=free: free)
        unpacking.unpack(nn.Sequential(nn.QuantizedLinear(1024, 2048)))
        assert said in caplog.text
    caplog.clear()
    unpacking.unpack(nn.Sequential(nn.Linear(8, 8)))
    assert not caplog.text


def test_an_accelerator_keeps_packed_weights_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "on_cpu", lambda: False)
    model = nn.Sequential(nn.QuantizedLinear(64, 64))
    model.set_dtype(mx.bfloat16)
    unpacking.unpack(model, "auto")
    assert type(model.layers[0]) is nn.QuantizedLinear
    unpacking.unpack(model, "on")
    assert type(model.layers[0]) is nn.Linear and model.layers[0].weight.dtype == mx.bfloat16


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="dequantize must be one of auto, on, off; got 'yes'"):
        unpacking.unpack(nn.Sequential(nn.QuantizedLinear(64, 64)), "yes")  # type: ignore[arg-type]


def test_memory_that_is_free_is_less_than_there_is() -> None:
    import os

    assert 0 < unpacking.free_memory() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_face_of_loading_takes_it(folder: Path) -> None:
    with inference.Engine.load(folder, dequantize="off") as engine:
        assert engine.path == "mlx"
