"""How a deep model is run is decided on two of its blocks; what runs then is the whole model."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import zoo
from mlx_lm.models import qwen3

from inference import Engine
from inference.forward import choose


def deep(blocks: int) -> qwen3.Model:
    config = {**zoo._BASE, "model_type": "qwen3", "num_hidden_layers": blocks}
    mx.random.seed(0)
    return qwen3.Model(qwen3.ModelArgs.from_dict(config))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_all_blocks_run_and_are_counted(dtype: mx.Dtype) -> None:
    sizes = []
    for blocks in (2, 5):
        model = deep(blocks)
        model.set_dtype(dtype)
        with Engine(model, None) as engine:
            found = engine.next_logits([[1, 2, 3, 4, 5]], None)[0]
            sizes.append(engine._runner.forward.bytes_per_entry)
        own = np.array(model(mx.array([[1, 2, 3, 4, 5]]))[0, -1].astype(mx.float32))
        assert np.abs(found - own).max() <= (1e-4 if dtype == mx.float32 else 5e-2) * (1 + np.abs(own).max())
    assert sizes[1] * 2 == sizes[0] * 5


def test_blocks_that_differ_are_all_tried() -> None:
    assert choose._two_blocks(deep(5)) is not None and choose._two_blocks(deep(2)) is None
    model = deep(5)
    model.model.layers[3].self_attn.scale *= 2
    assert choose._two_blocks(model) is None
