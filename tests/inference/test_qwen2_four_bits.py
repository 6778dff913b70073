"""The form of mlx-community/Qwen2.5-1.5B-Instruct-4bit, which many will start with: loaded, served, trained, published.

On a CPU `load` widens its bfloat16 scales to float32, which keeps the numbers and makes the products 8 times faster;
mlx-lm computes in bfloat16, and its logits differ from ours by its rounding.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import zoo
from asking import query
from mlx import nn
from test_engine import PROMPTS, forward_logprobs
from test_zoo import with_lora

from inference import Engine, loading
from legos_train import TrainConfig, Trainer, train
from legos_train.config import from_dict
from legos_train.rollout.players.actors import POLICY
from legos_train.run import build

ON_CPU = mx.default_device().type == mx.DeviceType.cpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, random_model_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("qwen2_four_bits")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(random_model_dir / name, path)
    zoo.save_qwen2_four_bits(path, json.loads((random_model_dir / "config.json").read_text())["vocab_size"])
    return path


def config(folder: Path, **changes: Any) -> TrainConfig:
    small = {"steps": 2, "batch_size": 8, "sampling": {"max_tokens": 6}, "lora": {"rank": 4}, "optim": {"lr": 1e-2}}
    return from_dict({"model": str(folder), "env": "KuhnPoker-v0", "eval": {"every": 0}, **small, **changes})


def plain(folder: Path, adapter: Path | None = None) -> Any:
    """mlx-lm's own model, computing in the type we compute in."""
    model = mlx_lm.load(str(folder), adapter_path=None if adapter is None else str(adapter))[0]
    loading.widen(model)
    return model


def test_it_is_loaded_as_it_is(folder: Path) -> None:
    model, _, info = loading.load(folder, dequantize="off")
    assert info.config["quantization"] == {"group_size": 64, "bits": 4}
    layer, embedding = model.model.layers[0].mlp.up_proj, model.model.embed_tokens
    assert isinstance(layer, nn.QuantizedLinear) and isinstance(embedding, nn.QuantizedEmbedding)
    assert (layer.weight.dtype, layer.bits, layer.group_size) == (mx.uint32, 4, 64)
    assert layer.scales.dtype == (mx.float32 if ON_CPU else mx.bfloat16)
    original = mlx_lm.load(str(folder))[0]
    assert original.model.layers[0].mlp.up_proj.scales.dtype == mx.bfloat16
    assert mx.array_equal(original.model.layers[0].mlp.up_proj.scales.astype(mx.float32), layer.scales)
    with Engine.load(folder) as engine:
        ours = engine.next_logits(PROMPTS)
        assert engine.context == 512 and engine.eos_ids == frozenset({2})
    theirs = np.stack([np.array(original(mx.array([p]))[0, -1].astype(mx.float32)) for p in PROMPTS])
    assert np.abs(ours - theirs).mean() < 0.1  # their rounding; the logits go up to 7


def test_it_serves_with_adapters(folder: Path) -> None:
    base = plain(folder)
    with Engine.load(folder) as engine:
        models: dict[str | None, Any] = {None: base}
        for seed, name in enumerate(("a", "b"), start=1):
            weights = zoo.adapter(engine._bank.shapes, seed, 4)
            engine.publish(name, weights, scale=1.0, version=seed)
            models[name] = with_lora(base, weights, 4, 1.0)
        requests = [
            query(PROMPTS[i % 4], 6, seed=i, adapter=(None, "a", "b")[i % 3], stop_ids=frozenset()) for i in range(8)
        ]
        for completion, request in zip(engine.generate(requests), requests):
            expected = forward_logprobs(models[request.adapter], request.prompt, completion.tokens)
            assert np.abs(expected - completion.logprobs).max() < (1e-4 if ON_CPU else 0.3)


@pytest.mark.slow
def test_two_training_steps_are_published(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(build(config(folder)))
    try:
        before = trainer.parts.engine.adapters()[POLICY]
        start = {name: np.array(w) for name, w in trainer.parts.backend.policy.trainable().items()}
        records = [trainer.step() for _ in range(2)]
        after = trainer.parts.engine.adapters()[POLICY]
        assert (before.version, after.version) == (0, 2) and before.digest != after.digest
        # 3e-6 on a CPU. In bfloat16 a logit near 8 is known to 0.03.
        assert max(r["mismatch_max"] for r in records) < (1e-4 if ON_CPU else 0.3)
        trained = trainer.parts.backend.policy.trainable()
        assert max(float(np.abs(np.array(w) - start[name]).max()) for name, w in trained.items()) > 1e-3
        trainer.parts.backend.policy.save(tmp_path / "adapter")
        served = trainer.parts.engine.next_logits(PROMPTS, POLICY)
        untrained = trainer.parts.engine.next_logits(PROMPTS)
    finally:
        trainer.parts.close()
    model = plain(folder, tmp_path / "adapter")
    expected = np.stack([np.array(model(mx.array([p]))[0, -1].astype(mx.float32)) for p in PROMPTS])
    assert np.abs(served - expected).max() < (1e-3 if ON_CPU else 0.3)
    assert np.abs(served - untrained).max() > 0.05


@pytest.mark.slow
def test_a_whole_run_leaves_an_adapter_that_mlx_lm_loads(folder: Path, tmp_path: Path) -> None:
    train(config(folder, run_dir=str(tmp_path / "run")), quiet=True)
    adapter = tmp_path / "run" / "adapter"
    assert json.loads((adapter / "adapter_config.json").read_text())["lora_parameters"]["rank"] == 4
    model = plain(folder, adapter)
    with Engine.load(folder, adapter_path=adapter) as engine:
        served = engine.next_logits(PROMPTS[:1], "default")[0]
    assert np.abs(served - np.array(model(mx.array([PROMPTS[0]]))[0, -1].astype(mx.float32))).max() < 1e-3
