"""Gated delta layers in numpy, against the model's own call over mlx-lm's caches."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import zoo
from mlx_lm.models import qwen3_5

from inference.adapters import AdapterBank
from inference.forward import Fed, host_delta, host_forward
from inference.forward.host_states import HostStates
from inference.forward.solo_forward import SoloForward

RNG = np.random.default_rng(4)


def build(**more: Any) -> qwen3_5.Model:
    """Three gated delta layers and one of attention; the last is of the kind that `full_attention_interval` leaves."""
    config = {**zoo._BASE, **zoo._LINEAR_ATTENTION, "num_hidden_layers": 4, "model_type": "qwen3_5", **more}
    mx.random.seed(1)
    model = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    for layer in model.layers:
        if "linear_attn" in layer:  # some gates nearly open, some nearly closed
            layer.linear_attn.dt_bias = mx.array([-6.0, 0.0, 4.0, 40.0])[: layer.linear_attn.num_v_heads]
            layer.linear_attn.conv1d.weight *= 4
    model.eval()
    return model


@pytest.fixture(scope="module", params=[{}, {"full_attention_interval": 3, "tie_word_embeddings": False}])
def pair(request: pytest.FixtureRequest) -> tuple[host_forward.HostForward, SoloForward]:
    model = build(**request.param)
    bank = AdapterBank(model)
    assert host_forward.fits(model)
    return host_forward.HostForward(model, zoo.VOCAB), SoloForward(model, bank)


def feed(forward: Any, bank: AdapterBank, tokens: np.ndarray, lengths: list[list[int]]) -> list[np.ndarray]:
    """Feed passes of `lengths` tokens to each row, the longer rows first padding the others; logits after each."""
    kv, offsets, found = forward.new_kv(), [0] * len(tokens), []
    for taken in lengths:
        fed = np.zeros((len(tokens), max(taken)), np.int32)
        for i, n in enumerate(taken):
            fed[i, :n] = tokens[i, offsets[i] : offsets[i] + n]
        found.append(forward(kv, Fed(0, offsets, fed, [bank.base] * len(tokens), [n - 1 for n in taken])))
        offsets = [at + n for at, n in zip(offsets, taken)]
    return found


@pytest.mark.parametrize(
    "lengths", [[[150, 70, 3], [1, 1, 1], [2, 64, 9], [1, 1, 1]], [[1, 5, 4], [5, 1, 2], [4, 4, 4]]]
)
def test_rows_of_different_lengths_get_what_they_get_alone(
    pair: tuple[host_forward.HostForward, SoloForward], lengths: list[list[int]]
) -> None:
    host, solo = pair
    tokens = RNG.integers(0, zoo.VOCAB, (3, 250)).astype(np.int32)
    for found, expected in zip(feed(host, solo.bank, tokens, lengths), feed(solo, solo.bank, tokens, lengths)):
        np.testing.assert_allclose(found, expected, atol=1e-4 * (1 + np.abs(expected).max()))


def test_all_positions_and_all_rows_at_once(pair: tuple[host_forward.HostForward, SoloForward]) -> None:
    tokens, base = RNG.integers(0, zoo.VOCAB, (2, 130)).astype(np.int32), pair[1].bank.base
    found, expected = (f(f.new_kv(), Fed(0, [0, 0], tokens, [base] * 2)) for f in pair)
    np.testing.assert_allclose(found, expected, atol=1e-4 * (1 + np.abs(expected).max()))


def test_many_rows_are_updated_part_by_part(
    pair: tuple[host_forward.HostForward, SoloForward], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, solo = pair
    tokens = RNG.integers(0, zoo.VOCAB, (5, 12)).astype(np.int32)
    lengths = [[9] * 5, [1] * 5, [1] * 5]
    expected = feed(host, solo.bank, tokens, lengths)
    monkeypatch.setattr(host_delta, "_AT_ONCE", 2 * 4 * 32 * 32)  # two rows
    for a, b in zip(feed(host, solo.bank, tokens, lengths), expected):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_state_goes_on_only_from_where_it_is(pair: tuple[host_forward.HostForward, SoloForward]) -> None:
    host, solo = pair
    base, tokens = solo.bank.base, RNG.integers(0, zoo.VOCAB, (1, 8)).astype(np.int32)
    kv = host.new_kv()
    host(kv, Fed(0, [0], tokens, [base], [5]))  # 6 tokens; the others are padding
    with pytest.raises(RuntimeError, match="slot 0 has seen 6 tokens, not the 8"):
        host(kv, Fed(0, [8], tokens[:, :1], [base], [0]))
    with pytest.raises(RuntimeError, match="slot 0 has seen None tokens, not the 6 to be kept"):
        kv.snapshot(0, 6)  # a failed pass may have left half a state


def test_states_are_counted_and_copied() -> None:
    states = HostStates([[(3, 8), (2, 4, 4)]])
    states.reserve(4)
    states.open(0, [0, 0])
    for stored in states.layers[0]:
        stored[1] = 7.0
    states.close(0, [5, 6])
    states.copy([(3, 1, 6)])
    held = states.snapshot(3, 6)
    states.scrub(1)
    assert all((stored[3] == 7.0).all() and (stored[1] == 0.0).all() for stored in states.layers[0])
    states.restore(held, [0, 2], 6)
    states.open(0, [6])
    assert all((stored[[0, 2]] == 7.0).all() for stored in states.layers[0])
    assert states.bytes_per_row == 4 * (24 + 32) and states.nbytes == 4 * states.bytes_per_row


@pytest.mark.parametrize("change", ["half", "bias", "unknown"])
def test_layers_that_only_look_alike_are_left_to_the_model(change: str) -> None:
    model = build()
    layer = model.layers[0].linear_attn
    if change == "half":
        layer.out_proj.weight = layer.out_proj.weight.astype(mx.bfloat16)
    elif change == "bias":
        layer.conv1d.bias = mx.ones(layer.conv_dim)
    else:
        layer.extra = qwen3_5.MLP(8, 8)
    assert not host_forward.fits(model)
