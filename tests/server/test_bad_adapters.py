"""Weights and bytes that are no adapter for this model: refused with 400, and the last good one serves on."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest
from test_adapters_http import Bytes, Put, said

from benchmarks.wire import Live


def change(edit: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of an adapter's weights in place."""

    def changed(weights: dict[str, Any]) -> dict[str, Any]:
        copy = dict(weights)
        edit(copy)
        return copy

    return changed


def poison(value: float) -> Callable[[dict[str, Any]], Any]:
    def edit(weights: dict[str, Any]) -> None:
        import mlx.core as mx

        name = min(weights)
        weights[name] = mx.where(mx.arange(weights[name].size).reshape(weights[name].shape) == 3, value, weights[name])

    return edit


def narrow(weights: dict[str, Any]) -> None:
    name = max(weights)
    weights[name] = weights[name][:, :-1]


def halve(weights: dict[str, Any]) -> None:
    del weights[max(weights)]


def rename(weights: dict[str, Any]) -> None:
    for name in list(weights):
        weights[name.replace("self_attn", "attention")] = weights.pop(name)


def mislabel(weights: dict[str, Any]) -> None:
    weights[max(weights).replace("lora_b", "dora_c")] = weights[max(weights)]


def whole_numbers(weights: dict[str, Any]) -> None:
    import mlx.core as mx

    for name in weights:
        weights[name] = weights[name].astype(mx.int32)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "NaN": (poison(float("nan")), "NaN or infinity"),
    "infinity": (poison(float("-inf")), "NaN or infinity"),
    "another width": (narrow, "has shape"),
    "half of a pair": (halve, "has no partner"),
    "another model's names": (rename, "the model has no linear layer"),
    "another leaf": (mislabel, "lora_a and lora_b"),
    "nothing": (dict.clear, "holds no tensors"),
    "whole numbers": (whole_numbers, "I32"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_weights_that_do_not_fit_are_refused(live: Live, put: Put, adapter_bytes: Bytes, what: str) -> None:
    edit, message = CHANGES[what]
    assert put("a", adapter_bytes(1)).status == 200
    before = said(live, "a")
    reply = put("a", adapter_bytes(2, change=change(edit)))
    assert reply.status == 400 and message in reply.json()["error"]["message"], reply
    after = said(live, "a")
    assert (after["token_ids"], after["policy_version"]) == (before["token_ids"], 1)
    assert put("a", adapter_bytes(2)).json()["version"] == 2  # what failed is not counted


class Canary:
    """Unpickled, it leaves a trace."""

    touched = False

    def __reduce__(self) -> Any:
        return (setattr, (Canary, "touched", True))


def headed(head: Any, data: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


HUGE = {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}
BODIES: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello",
    "pickle": pickle.dumps(Canary()),
    "zip of pickles": b"PK\x03\x04" + pickle.dumps(Canary()),
    "gguf": b"GGUF\x03\x00\x00\x00" + bytes(64),
    "npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "a head longer than the file": struct.pack("<Q", 1 << 62) + b"{}",
    "a head that is not JSON": headed(b"{"),
    "a head that is a list": headed([]),
    "a deep head": headed(b"[" * 100_000),
    "sizes that overflow": headed({"model.layers.0.mlp.up_proj.lora_a": HUGE}, bytes(4)),
    "offsets beyond the file": headed({"x.lora_a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(4)),
    "an unknown type": headed({"x.lora_a": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
}


@pytest.mark.parametrize("what", BODIES)
def test_bytes_that_are_no_adapter_are_refused(put: Put, good: Callable[[], str], what: str) -> None:
    reply = put("a", BODIES[what], "?scale=1")
    assert reply.status == 400 and "refused" in reply.json()["error"]["message"], reply
    assert not Canary.touched
    good()
