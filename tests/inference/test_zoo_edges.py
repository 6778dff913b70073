"""What architectures bring that is not parity: refusals, states that must not be left over, memory, odd shapes."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import zoo
from asking import query
from mlx_lm.models import qwen2
from test_engine import close
from test_zoo import ON_CPU, PATHS, PROMPTS, case, check, jobs, path, run

from inference import AdapterError, Engine, UnsupportedModel, clone_structure
from inference.forward import Fed, choose
from inference.forward.kv import SlotKVCache
from inference.forward.layer_slots import LayerCache
from inference.forward.solo_forward import SoloForward
from inference.loading import context_length
from tests.lora_of_mlx import linear_to_lora_layers

pytestmark = pytest.mark.usefixtures("compared_anew")


@pytest.mark.skipif(not ON_CPU, reason="other devices have the product that is missing here")
def test_experts_in_bfloat16_are_refused_on_a_cpu() -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot run mlx_lm.models.qwen3_moe: .*only supports float32"):
        Engine(zoo.build("qwen3_moe", dtype=mx.bfloat16), None)


def test_a_model_that_cannot_be_called_is_refused() -> None:
    model = zoo.build("qwen2")
    del model.model["norm"]
    with pytest.raises(UnsupportedModel, match=r"cannot run mlx_lm.models.qwen2: AttributeError.*norm"):
        Engine(model, None)


class Even(qwen2.Qwen2Model):
    """Qwen 2 written for rows of one length: positions are counted from a single number."""

    def __call__(self, inputs: mx.array, cache: Any = None, *rest: Any) -> mx.array:
        if cache is not None and not isinstance(cache[0].offset, int):
            raise TypeError("an offset is one number")
        return super().__call__(inputs, cache, *rest)


def test_a_model_that_takes_no_uneven_rows_is_run_row_by_row() -> None:
    model = zoo.build("qwen2")
    model.model.__class__ = Even
    with Engine(model, None) as engine:
        assert engine._runner.forward.name == "row by row"
        requests = [query(prompt, 4, seed=i, stop_ids=frozenset()) for i, prompt in enumerate(PROMPTS)]
        found = engine.generate(requests)
    with Engine(zoo.build("qwen2"), None) as engine:
        assert all(close(a, b) for a, b in zip(found, engine.generate(requests)))


@pytest.mark.slow
def test_masks_are_broadcast_along_the_axes_that_a_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemma 2 has one axis more than others; with the usual ones its numbers are wrong, and there is no error."""
    with case("gemma2") as made:
        assert path(made) == "mlx"
    monkeypatch.setattr(choose, "alike", lambda *_: True)
    with case("gemma2") as made, pytest.raises(AssertionError):
        assert path(made) == "mlx"
        check(made, 1.0)


def test_a_window_that_is_not_masked_is_found_although_the_comparison_is_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unmasked(self: LayerCache, n: int, return_array: bool = False, window_size: int | None = None) -> Any:
        windows, self.window = self.window, None
        try:
            return original(self, n, return_array)
        finally:
            self.window = windows

    with case("gemma3_text") as made:
        assert path(made) == "mlx"
    original = LayerCache.make_mask
    monkeypatch.setattr(LayerCache, "make_mask", unmasked)
    with case("gemma3_text") as made:
        assert path(made) == "row by row"


class Capped(qwen2.Model):
    """Qwen 2 with a cap on its logits that ordinary prompts do not reach."""

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        return mx.tanh(super().__call__(*args, **kwargs) / 1e4) * 1e4


@pytest.mark.skipif(not ON_CPU, reason="the numpy path is for CPUs")
def test_a_cap_that_a_short_comparison_does_not_show_is_kept() -> None:
    model = zoo.build("qwen2")
    model.__class__ = Capped
    loud = {
        "model.embed_tokens.weight": model.model.embed_tokens.weight * 10,
        "model.norm.weight": mx.full((64,), 30.0),
    }
    with Engine(model, None) as engine:
        assert PATHS[type(engine._runner.forward)] == "mlx"
        # As an adapter may, make the logits large; the engine shares the arrays, not the modules.
        for module in (model, engine.model):
            module.load_weights(list(loud.items()), strict=False)
        expected = np.array(model(mx.array([PROMPTS[0]]))[0, -1])
        np.testing.assert_allclose(engine.next_logits([PROMPTS[0]])[0], expected, rtol=1e-3, atol=1e-2)
        assert 9000 > np.abs(expected).max() > 2000


@pytest.mark.parametrize("name", ["gemma3_text", "mamba2", "olmoe", "ministral3", "qwen3_5"])
def test_prompts_of_different_lengths_in_one_pass(name: str) -> None:
    """Padding enters no state and no expert; all three join in the same step, each under another adapter."""
    with case(name, prefill_tokens=2048, prefix_cache_bytes=0) as made:
        requests = [
            query(prompt, 3, seed=i, stop_ids=frozenset(), adapter=(None, "a", "b")[i])
            for i, prompt in enumerate((PROMPTS[0], PROMPTS[1], PROMPTS[1][5:]))
        ]
        fed = []
        forward = made.engine._runner.forward

        def watched(kv: Any, read: Fed) -> Any:
            fed.append(read.tokens.shape)
            return forward(kv, read)

        for name in ("batches", "pads", "stateful"):
            setattr(watched, name, getattr(forward, name))
        made.engine._runner.forward = watched  # type: ignore[assignment]
        assert max(made.error(c, r) for c, r in zip(made.engine.generate(requests), requests)) <= 1e-4
        shortest, _, longest = sorted(map(len, (PROMPTS[0], PROMPTS[1], PROMPTS[1][5:])))
        assert fed[0] == (3, longest if forward.pads else shortest)
        assert forward.pads or {width for _, width in fed[1:3]} != {longest}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["gemma3_text", "mamba2"])
def test_a_step_that_fails_leaves_no_state_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in different places when the model fails once; all start over and get what they would have got."""
    with case(name) as made:
        engine, requests = made.engine, jobs()
        expected = run(engine, requests)
        called, original = [0], type(engine.model).__call__

        def fails_once(*args: Any, **kwargs: Any) -> Any:
            called[0] += 1
            if called[0] == 17:
                raise RuntimeError("out of memory")
            return original(*args, **kwargs)

        monkeypatch.setattr(type(engine.model), "__call__", fails_once)
        assert all(close(a, b) for a, b in zip(run(engine, requests), expected))
        assert called[0] > 17


def test_a_slot_says_how_much_its_states_have_seen() -> None:
    with case("mamba2") as made:
        forward = made.engine._runner.forward
        kv, base = forward.new_kv(), made.engine._bank.base
        one = np.array([[4]], dtype=np.int32)
        forward(kv, Fed(0, [0], np.array([[1, 2, 3]], dtype=np.int32), [base], [2]))
        kv.copy([(4, 0, 3)])
        with pytest.raises(RuntimeError, match="slot 1 has seen None tokens, not the 3"):
            forward(kv, Fed(1, [3], one, [base], [0]))
        with pytest.raises(RuntimeError, match="slot 4 has seen 3 tokens, not the 2"):
            forward(kv, Fed(4, [2], one, [base], [0]))
        with pytest.raises(RuntimeError, match="slot 4 has seen None tokens, not the 3"):
            forward(kv, Fed(4, [3], one, [base], [0]))  # the pass before failed and may have left half a state
        with pytest.raises(RuntimeError, match=r"fed separately, got offsets \[3, 0\]"):
            forward(kv, Fed(0, [3, 0], np.array([[4], [4]], dtype=np.int32), [base] * 2, [0, 0]))
        with pytest.raises(RuntimeError, match="slot 0 has seen 3 tokens, not the 2 to be kept"):
            kv.snapshot(0, 2)


def test_a_row_of_the_fallback_says_how_much_it_has_seen() -> None:
    with case("mamba2") as made:
        base, engine = made.engine._bank.base, made.engine
        solo = SoloForward(engine.model, engine._bank)
        kv = solo.new_kv()
        solo(kv, Fed(0, [0], np.array([[1, 2, 3]], dtype=np.int32), [base], [2]))
        kv.copy([(4, 0, 3)])
        with pytest.raises(RuntimeError, match="slot 0 has seen None tokens, not the 3"):
            solo(kv, Fed(0, [3], np.array([[4]], dtype=np.int32), [base], [0]))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["gemma3_text", "mamba2"])
def test_memory_is_planned_by_what_a_token_costs(name: str) -> None:
    """Not by the 256 entries that mlx-lm's caches take at once, which refused long prompts on small budgets."""
    with case(name, max_kv_bytes=1 << 18) as made:
        assert made.engine._runner.bytes_per_entry <= 1024
        [completion] = made.engine.generate([query(PROMPTS[1], 100, stop_ids=frozenset())])
        assert len(completion.tokens) == 100


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("qwen3_moe", "model.layers.0.mlp.switch_mlp.up_proj", "is an expert layer; adapters on expert layers"),
        ("qwen2", "model.embed_tokens", "is an embedding layer; adapters on embedding layers"),
        ("phi3", "model.layers.0.self_attn.q_proj", r"no linear layer .*\(it has .*self_attn.o_proj, .*qkv_proj"),
    ],
)
def test_adapters_that_cannot_be_served_are_refused(name: str, tensor: str, message: str) -> None:
    weights = {f"{tensor}.lora_a": mx.zeros((64, 2)), f"{tensor}.lora_b": mx.zeros((2, 64))}
    with Engine(zoo.build(name), None) as engine, pytest.raises(AdapterError, match=message):
        engine.publish("a", weights, scale=1.0, version=1)


def test_lora_layers_of_every_kind_are_seen_through() -> None:
    model = zoo.build("qwen3_moe")
    expected = np.array(model(mx.array([PROMPTS[0]]))[0, -1])
    adapted = clone_structure(model)
    keys = ["mlp.switch_mlp.up_proj", "self_attn.q_proj", "model.embed_tokens"]
    config = {"rank": 2, "scale": 1.0, "dropout": 0.0, "keys": keys}
    linear_to_lora_layers(adapted, 2, config)
    adapted.apply_to_modules(lambda _, m: "lora_b" in m and m.update({"lora_b": mx.ones_like(m["lora_b"])}))
    assert np.abs(np.array(adapted(mx.array([PROMPTS[0]]))[0, -1]) - expected).max() > 0.1
    with Engine(adapted, None) as engine:
        np.testing.assert_allclose(engine.next_logits([PROMPTS[0]])[0], expected, atol=1e-4)


def test_rows_are_told_apart_in_flattened_input_or_not_at_all() -> None:
    with Engine(zoo.build("qwen2"), None) as engine:
        bank = engine._bank
        for seed in (1, 2):
            engine.publish(str(seed), zoo.adapter(bank.shapes, seed, 3), scale=1.0, version=1)
        layer = bank._layers["model.layers.0.self_attn.q_proj"]
        policies = [bank.find("1"), bank.find("2"), bank.base]
        x = mx.random.normal((3, 4, 64), key=mx.random.key(0))
        bank.select(policies, 4)
        y = np.array(layer(x))
        np.testing.assert_allclose(np.array(layer(x.reshape(12, 64))), y.reshape(12, 64), atol=1e-5)
        np.testing.assert_allclose(np.array(layer(x.reshape(3, 2, 2, 64))), y.reshape(3, 2, 2, 64), atol=1e-5)
        with pytest.raises(RuntimeError, match=r"shape \(6, 64\) for 3 rows of 4 tokens"):
            layer(x[:, :2].reshape(6, 64))
        for i, policy in enumerate(policies):
            bank.select([policy], 4)
            np.testing.assert_allclose(np.array(layer(x[i : i + 1]))[0], y[i], atol=1e-5)


def test_a_layer_that_stores_nothing_is_left_out_of_copies_and_snapshots() -> None:
    """Some designs attend to another layer's keys; which layers do is not known before the first write."""
    kv, other = SlotKVCache(2), SlotKVCache(2)
    fed = mx.random.normal((1, 2, 5, 4), key=mx.random.key(0))
    kv.open(0, [0], 5)[1].update_and_fetch(fed, fed * 2)
    kv.copy([(2, 0, 5)])
    other.restore(kv.snapshot(2, 4), [1], 3)
    assert other.layers[0].keys is None
    assert mx.array_equal(other.layers[1].keys[1, :, :3], fed[0, :, :3])
    assert mx.array_equal(other.layers[1].values[1, :, :3], fed[0, :, :3] * 2)


def test_the_context_is_found_wherever_a_config_has_it() -> None:
    for name in ("qwen2", "gpt2", "mistral3"):
        assert context_length(zoo.build(name)) == zoo.CONTEXT
    gemma = zoo.build("gemma")  # mlx-lm drops the number
    assert context_length(gemma) == 1 << 30
    assert context_length(gemma, {"max_position_embeddings": 99}) == 99
    assert context_length(gemma, {"text_config": {"max_position_embeddings": 98}}) == 98
