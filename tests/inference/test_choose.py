"""How a deep model is run is decided on two of its blocks; what runs then is the whole model."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
import zoo
from mlx import nn
from mlx_lm.models import qwen3

from inference import Engine
from inference.adapters import AdapterBank
from inference.forward import Fed, choose

pytestmark = pytest.mark.usefixtures("compared_anew")


def deep(blocks: int, **more: object) -> qwen3.Model:
    config = {**zoo._BASE, "model_type": "qwen3", "num_hidden_layers": blocks, **more}
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
    assert choose._few_blocks(deep(5)) is not None and choose._few_blocks(deep(2)) is None
    model = deep(5)
    model.model.layers[3].self_attn.scale *= 2
    assert choose._few_blocks(model) is None


@pytest.mark.quick
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("quantised", [True, False])
def test_a_large_vocabulary_is_tried_on_its_first_tokens_and_whole_in_use(
    tied: bool, quantised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, widths = deep(3, vocab_size=5000, tie_word_embeddings=tied), set()
    if quantised:
        nn.quantize(model, 32, 4)
    tried = choose._choose

    def seen(model: nn.Module, bank: AdapterBank) -> object:
        chosen = tried(model, bank)
        widths.add(chosen.vocab)
        return chosen

    monkeypatch.setattr(choose, "_choose", seen)
    with Engine(model, None) as engine:
        assert (engine.path, engine.vocab_size) == ("mlx" if quantised else "numpy", 5000)
        found = engine.next_logits([[1, 2, 4321, 4, 4999]], None)[0]
    assert widths == {1024}
    own = np.array(model(mx.array([[1, 2, 4321, 4, 4999]]))[0, -1])
    assert found.shape == (5000,) and np.abs(found - own).max() <= 1e-4 * (1 + np.abs(own).max())


def test_a_model_that_needs_its_vocabulary_is_tried_with_all_of_it() -> None:
    class Own(qwen3.Model):
        def __call__(self, *args: object, **more: object) -> mx.array:
            return super().__call__(*args, **more).reshape(-1, 4999)

    model = deep(3, vocab_size=4999)
    short = choose._few_blocks(model)
    assert short is not None and choose._few_tokens(short, AdapterBank(deep(3))) is not None
    short.__class__ = Own
    assert choose._few_tokens(short, AdapterBank(deep(3))) is None


@pytest.mark.quick("qwen3_5*", "gemma3_text*")
@pytest.mark.parametrize(
    ("name", "more", "tried"),
    [
        ("qwen3_5", {}, 2),
        ("qwen3_next", {}, 2),
        ("gemma3_text", {}, 6),
        ("cohere2", {}, 6),
        ("falcon_h1", {}, 2),
        ("lfm2", {"full_attn_idxs": [1, 3, 5]}, 5),
        ("granitemoehybrid", {"layer_types": ["mamba", "attention"] * 3}, 2),
        ("gpt_oss", {"layer_types": ["sliding_attention", "full_attention"] * 3}, 2),
    ],
)
def test_of_blocks_of_several_kinds_the_first_of_each_are_tried(
    name: str, more: dict[str, object], tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all of them run, with the bytes that all of them take. Blocks that know their number are all tried."""
    kind = zoo.kinds()[name]
    monkeypatch.setitem(zoo.ZOO, name, replace(kind, config={**kind.config, "num_hidden_layers": 6, **more}))
    model, depths, choosing = zoo.build(name), [], choose._choose

    def seen(model: nn.Module, bank: AdapterBank) -> object:
        depths.append(len(model.layers))
        return choosing(model, bank)

    bank = AdapterBank(model, slots=2)
    whole = choosing(model, bank)
    monkeypatch.setattr(choose, "_choose", seen)
    chosen = choose.choose_forward(model, bank)
    assert depths == [tried] and chosen.name == whole.name == ("numpy" if name == "qwen3_5" else "mlx")
    assert (chosen.bytes_per_entry, chosen.bytes_per_row) == (whole.bytes_per_entry, whole.bytes_per_row)
    assert (chosen.vocab, chosen.pads) == (whole.vocab, whole.pads)
    ids = np.array([[3, 1, 4, 1, 5]], np.int32)
    found, expected = (f(f.new_kv(), Fed(0, [0], ids, [bank.base])) for f in (chosen, whole))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    own = np.array(model(mx.array(ids)).astype(mx.float32))
    np.testing.assert_allclose(found, own, atol=1e-3)


@pytest.mark.parametrize(("name", "check"), [("qwen3_next", "_weighed"), ("qwen3_5", "_two_agree")])
def test_blocks_that_only_go_wrong_together_are_found_out(
    name: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a model counted its blocks."""
    model = zoo.build(name)
    layers = getattr(model, "language_model", model).model.layers
    layers += layers[:1]
    depths, choosing = [], choose._choose

    def seen(model: nn.Module, bank: AdapterBank) -> object:
        depths.append(len(model.layers))
        return choosing(model, bank)

    monkeypatch.setattr(choose, "_choose", seen)
    monkeypatch.setattr(choose, check, lambda *_: False)
    choose.choose_forward(model, AdapterBank(model, slots=2))
    assert depths == [2, 3]
