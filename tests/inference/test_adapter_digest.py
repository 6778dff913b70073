"""Equal digests mean equal behaviour: whatever changes what an adapter does changes its digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from inference import Engine
from inference.adapters import adapter_digest
from inference.engine import probe


def test_all_that_an_adapter_is_is_in_its_digest() -> None:
    a, b = mx.arange(6, dtype=mx.float32).reshape(2, 3), mx.ones((3, 2))
    own = adapter_digest({"x.lora_a": a, "x.lora_b": b}, 2.0)
    assert own == adapter_digest({"x.lora_b": mx.array(b), "x.lora_a": mx.array(a)}, 2), "copies, in any order"
    others = [
        adapter_digest({"x.lora_a": a, "x.lora_b": b}, 2.5),
        adapter_digest({"x.lora_a": a + 1, "x.lora_b": b}, 2.0),
        adapter_digest({"x.lora_a": a, "x.lora_b": b * 1.0000001}, 2.0),
        adapter_digest({"x.lora_a": a.reshape(3, 2), "x.lora_b": b}, 2.0),
        adapter_digest({"x.lora_a": a.view(mx.int32), "x.lora_b": b}, 2.0),
        adapter_digest({"y.lora_a": a, "y.lora_b": b}, 2.0),
        adapter_digest({"x.lora_a": a}, 2.0),
    ]
    assert len({own, *others}) == 1 + len(others)


def test_weights_that_passed_are_tried_again_only_after_many_others(
    random_model: tuple[Any, Any], make_adapter: Callable[..., dict[str, mx.array]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(probe, "KNOWN", 2)
    monkeypatch.setattr(probe, "make_prompt_cache", lambda model: tried.append(name))
    weights = {seed: make_adapter(seed) for seed in (1, 2)}
    said = [("a", 1, 2.0), ("b", 1, 2.0), ("c", 1, 3.0), ("d", 2, 2.0), ("e", 2, 2.0), ("f", 1, 2.0)]
    with Engine(*random_model) as engine:
        for name, seed, scale in said:
            engine.publish(name, weights[seed], scale=scale, version=1)
        assert set(engine.adapters()) == {*"abcdef"}
    assert tried == ["a", "c", "d", "f"]
