"""Equal digests mean equal behaviour: whatever changes what an adapter does changes its digest."""

from __future__ import annotations

import mlx.core as mx

from inference.adapters import adapter_digest


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
