"""Publishing: versions never mix, bad weights never get in, and mixed batches equal separate ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from asking import query
from mlx import nn
from mlx.utils import tree_flatten
from test_engine import PROMPTS, close, forward_logprobs

from inference import AdapterError, Completion, Engine, Request, clone_structure
from inference.adapters import check_adapter
from inference.engine import model_runner
from inference.engine.version_ledger import VersionLedger
from inference.types import VersionConflict
from tests.lora_of_mlx import LoRALinear, linear_to_lora_layers

MakeAdapter = Callable[..., dict[str, mx.array]]


@pytest.fixture
def engine(random_model: tuple[Any, Any]) -> Iterator[Engine]:
    with Engine(*random_model) as made:
        yield made


def work(adapter: str | None, tokens: int = 6) -> list[Request]:
    return [query(PROMPTS[i % 4], tokens, seed=i, adapter=adapter, stop_ids=frozenset()) for i in range(8)]


def with_lora(model: Any, weights: dict[str, mx.array], rank: int, scale: float) -> Any:
    """mlx-lm's own LoRA layers over a copy of the model."""
    copy = clone_structure(model)
    keys = {".".join(name.split(".")[3:-1]) for name in weights}
    config = {"rank": rank, "scale": scale, "dropout": 0.0, "keys": sorted(keys)}
    linear_to_lora_layers(copy, 2, config)
    copy.load_weights(list(weights.items()), strict=False)
    copy.eval()
    return copy


def test_an_adapter_gives_the_logprobs_of_mlx_lms_lora_layers(
    engine: Engine, random_model: tuple[Any, Any], make_adapter: MakeAdapter
) -> None:
    weights = make_adapter(1)
    engine.publish("a", weights, scale=2.0, version=3)
    reference = with_lora(random_model[0], weights, 4, 2.0)
    for completion, request in zip(engine.generate(work("a")), work("a")):
        assert (completion.adapter, completion.policy_version) == ("a", 3)
        expected = forward_logprobs(reference, request.prompt, completion.tokens)
        assert np.allclose(completion.logprobs, expected, atol=1e-4)
        base = forward_logprobs(random_model[0], request.prompt, completion.tokens)
        assert np.abs(base - expected).max() > 0.5  # large enough that a mixture would show


@pytest.mark.slow
def test_what_was_published_when_does_not_change_a_bit(
    random_model: tuple[Any, Any], make_adapter: MakeAdapter
) -> None:
    """Slots, adapters of other requests and what ran together before: after `drop_caches` nothing of it shows."""
    weights = {name: make_adapter(seed) for name, seed in (("a", 1), ("b", 2), ("c", 3))}
    requests = [one for name in ("a", "b", "same as b", None) for one in work(name)]

    def logprobs(*published: str, before: tuple[str, ...] = ()) -> list[list[float]]:
        with Engine(*random_model) as engine:
            for version, name in enumerate(published):
                engine.publish(name, weights[name.removeprefix("same as ")], scale=2.0, version=version)
            if before:
                engine.generate([one for name in before for one in work(name)])
            engine.drop_caches()
            return [completion.logprobs for completion in engine.generate(requests)]

    expected = logprobs("a", "b", "same as b")
    assert logprobs("same as b", "b", "a") == expected
    assert logprobs("b", "c", "c", "a", "same as b", "b") == expected
    assert logprobs("a", "b", "same as b", "c", before=("c", "b", "a")) == expected


def test_running_requests_keep_their_version_and_new_ones_get_the_new(
    engine: Engine, make_adapter: MakeAdapter
) -> None:
    old, new = make_adapter(1), make_adapter(2)
    engine.publish("a", old, scale=1.0, version=1)
    pure_old = engine.generate(work("a"))
    engine.publish("a", new, scale=1.0, version=2)
    pure_new = engine.generate(work("a"))
    assert not any(x.tokens == y.tokens for x, y in zip(pure_old, pure_new))

    engine.publish("a", old, scale=1.0, version=3)
    first = [engine.submit(request) for request in work("a")]
    found = {c.request_id: c for _ in range(3) for c in engine.step()}
    engine.publish("a", new, scale=1.0, version=4)
    second = [engine.submit(request) for request in work("a")]
    assert engine.adapters()["a"].running == 8
    while engine.busy:
        found.update((c.request_id, c) for c in engine.step())
    assert {found[i].policy_version for i in first} == {3}
    assert {found[i].policy_version for i in second} == {4}
    assert all(close(found[i], c) for i, c in zip(first, pure_old))
    assert all(close(found[i], c) for i, c in zip(second, pure_new))
    assert engine.adapters()["a"].running == 0


def test_a_mixed_batch_equals_separate_ones(engine: Engine, make_adapter: MakeAdapter) -> None:
    names: list[str | None] = [None, "small", "large", "partial"]
    engine.publish("small", make_adapter(1, rank=2), scale=1.0, version=1)
    engine.publish("large", make_adapter(2, rank=9), scale=0.5, version=1)
    partial = {name: w for name, w in make_adapter(3).items() if "layers.1.mlp" in name}
    engine.publish("partial", partial, scale=3.0, version=1)
    separate = {name: engine.generate(work(name)) for name in names}
    engine.drop_caches()
    mixed = engine.generate([work(name)[i] for i in range(8) for name in names])
    for i in range(8):
        for j, name in enumerate(names):
            assert close(mixed[i * 4 + j], separate[name][i])


def test_a_warm_prefix_cache_never_crosses_adapters(engine: Engine, make_adapter: MakeAdapter) -> None:
    a, b = make_adapter(1), make_adapter(2)

    def rounds(drop: bool) -> list[list[Completion]]:
        results = []
        for version, weights in enumerate((a, b, a)):
            engine.publish("p", weights, scale=1.0, version=version)
            if drop:
                engine.drop_caches()
            results.append(engine.generate(work("p")))
        return results

    cold, warm = rounds(drop=True), rounds(drop=False)
    for one, other in zip(cold, warm):
        assert all(close(x, y) for x, y in zip(one, other))
    assert sum(c.cached_tokens for c in warm[2]) > sum(c.cached_tokens for c in cold[2])  # A's entries are found again


def test_bad_weights_are_refused_and_the_old_version_serves(engine: Engine, make_adapter: MakeAdapter) -> None:
    good = make_adapter(1)
    digest = engine.publish("a", good, scale=1.0, version=1)
    expected = engine.generate(work("a", 2))
    a, b = "model.layers.0.self_attn.q_proj.lora_a", "model.layers.0.self_attn.q_proj.lora_b"
    nan = mx.array(np.where(np.arange(64 * 4).reshape(64, 4) == 77, np.nan, 0.1).astype(np.float32))
    cases: list[tuple[dict[str, mx.array], float, str]] = [
        ({}, 1.0, "no tensors"),
        (good, float("nan"), "scale is nan"),
        ({**good, a: nan}, 1.0, r"q_proj\.lora_a holds NaN"),
        ({**good, b: good[b] * float("inf")}, 1.0, r"q_proj\.lora_b holds NaN"),
        ({**good, a: mx.zeros((65, 4))}, 1.0, r"shape \(65, 4\), expected \(64, rank\)"),
        ({**good, b: mx.zeros((4, 63))}, 1.0, r"shape \(4, 63\), expected \(rank, 64\)"),
        ({**good, b: mx.zeros((5, 64))}, 1.0, "rank 5, but .*lora_a has rank 4"),
        ({**good, a: mx.zeros((64,))}, 1.0, r"shape \(64,\)"),
        ({**good, a: mx.zeros((64, 65)), b: mx.zeros((65, 64))}, 1.0, "rank 65; 1 to 64"),
        ({k: v for k, v in good.items() if k != b}, 1.0, "no partner .*q_proj.lora_b"),
        ({**good, "model.layers.9.mlp.up_proj.lora_a": mx.zeros((64, 4))}, 1.0, "no linear layer"),
        ({**good, a[:-6] + "m": mx.zeros((64,))}, 1.0, "only lora_a and lora_b"),
    ]
    for weights, scale, message in cases:
        with pytest.raises(AdapterError, match=message):
            engine.publish("a", weights, scale=scale, version=2)
        info = engine.adapters()["a"]
        assert (info.version, info.digest) == (1, digest)
    assert all(close(x, y) for x, y in zip(engine.generate(work("a", 2)), expected))


def test_weights_that_are_finite_until_scaled_or_multiplied_are_refused(
    engine: Engine, make_adapter: MakeAdapter
) -> None:
    good = make_adapter(1)
    b = "model.layers.0.self_attn.q_proj.lora_b"
    digest = engine.publish("f", good, scale=1.0, version=1)
    expected, used = engine.generate(work("f", 2)), len(engine._bank._used)
    scaled = {**good, b: mx.full(good[b].shape, 3e38)}
    cases: list[tuple[dict[str, mx.array], float, str]] = [
        (scaled, 900000.0, r"q_proj\.lora_b times the scale 900000 has values too large for mlx\.core\.float32"),
        ({name: w * 1e30 for name, w in good.items()}, 1.0, "logits are not finite"),
    ]
    for weights, scale, message in cases:
        for name in ("f", "new"):
            with pytest.raises(AdapterError, match=message):
                engine.publish(name, weights, scale=scale, version=2)
    info = engine.adapters()
    assert (info["f"].version, info["f"].digest) == (1, digest) and "new" not in info
    assert len(engine._bank._used) == used, "no slot is lost"
    assert all(close(x, y) for x, y in zip(engine.generate(work("f", 2)), expected))
    half = {"model.layers.0.self_attn.q_proj": (64, 64)}
    pair = {b[:-1] + "a": mx.ones((64, 1)), b: mx.full((1, 64), 6e4)}
    check_adapter(half, pair, scale=2.0, max_rank=4)
    with pytest.raises(AdapterError, match=r"too large for mlx\.core\.float16"):
        check_adapter(half, pair, scale=2.0, max_rank=4, dtype=mx.float16)


def test_versions_only_go_up_for_those_who_may_repeat_themselves(engine: Engine, make_adapter: MakeAdapter) -> None:
    one, two = make_adapter(1), make_adapter(2)

    def publish(weights: dict[str, mx.array], version: int | None) -> tuple[int, str]:
        digest = engine.publish("m", weights, scale=1.0, version=version, monotone=True)
        return engine.adapters()["m"].version, digest

    first, second = publish(one, 3), publish(two, 5)
    assert (first[0], second[0]) == (3, 5) and first[1] != second[1]
    assert publish(two, 5) == second, "a repetition changes nothing"
    for weights, version, why in ((one, 5, "with other weights"), (one, 3, "older than version 5"), (two, 4, "older")):
        with pytest.raises(VersionConflict, match=why):
            publish(weights, version)
        assert (engine.adapters()["m"].version, engine.adapters()["m"].digest) == second
    engine.unpublish("m", for_good=False)
    assert publish(two, 5) == second, "it made room for others, and is wanted again"
    engine.unpublish("m")
    for weights, version, why in ((two, 5, "was taken away"), (one, 3, "older"), (one, 5, "other weights")):
        with pytest.raises(VersionConflict, match=why):
            publish(weights, version)
    assert publish(one, None)[0] == 6
    assert engine.publish("m", two, scale=1.0, version=2) == second[1], "the trainer's own engine may go back"
    engine.unpublish("m")


def test_the_ledger_forgets_the_oldest_of_the_names_taken_away() -> None:
    ledger = VersionLedger(most=2)
    for name in ("kept", "a", "b", "c"):
        ledger.put(name, 7, name)
    for name in ("b", "a", "c"):
        ledger.drop(name)
    assert [ledger.next(name) for name in ("kept", "a", "b", "c")] == [8, 8, 1, 8]
    ledger.drop("kept", for_good=False)  # it made room for another
    assert [ledger.next(name) for name in ("kept", "a", "b", "c")] == [8, 1, 1, 8]
    ledger.check("kept", 7, "kept")
    ledger.put("c", 9, "c")
    ledger.drop("a")
    assert [ledger.next(name) for name in ("kept", "c")] == [8, 10], "a name that is back is not counted"


def test_finite_weights_that_overflow_fail_their_own_requests_only(
    random_model: tuple[Any, Any], make_adapter: MakeAdapter
) -> None:
    with Engine(*random_model, max_rows=2) as engine:
        engine._publisher.probe = lambda *given: None  # type: ignore[assignment] - as if only other prompts overflowed
        huge = {name: w * 1e30 for name, w in make_adapter(1).items()}
        engine.publish("huge", huge, scale=1.0, version=1)
        expected = engine.generate(work(None))
        ids = [engine.submit(request) for pair in zip(work("huge"), work(None)) for request in pair]
        found: dict[int, Completion] = {}
        while engine.busy:
            found.update((c.request_id, c) for c in engine.step())
        assert {found[i].finish_reason for i in ids[::2]} == {"error"}
        assert "not finite" in str(found[ids[0]].error)
        assert all(close(found[i], e) for i, e in zip(ids[1::2], expected))
        assert not np.isfinite(engine.next_logits([PROMPTS[0]], "huge")).all()
        with pytest.raises(FloatingPointError, match="not finite"):
            engine.score([PROMPTS[0]], [[5, 6]], "huge")


def test_a_slot_is_clean_after_a_tenant_that_overflowed(
    engine: Engine, make_adapter: MakeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._publisher, "probe", lambda *given: None)
    engine.publish("huge", {name: w * 1e30 for name, w in make_adapter(1).items()}, scale=1.0, version=1)
    pair = [query(PROMPTS[3], 4, stop_ids=frozenset()), query(PROMPTS[1], 4, stop_ids=frozenset())]
    expected = engine.generate(pair)
    [failed] = engine.generate([query(PROMPTS[2], 4, adapter="huge")])
    assert failed.finish_reason == "error"
    # The short prompt gets the slot in which the long one left its infinities, and reads beyond its own end.
    assert all(close(c, e) for c, e in zip(engine.generate(pair), expected))


def test_slots_are_given_back_and_more_are_made_when_all_are_in_use(
    random_model: tuple[Any, Any], make_adapter: MakeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_runner, "DIGESTS", 3)
    with Engine(*random_model, adapter_slots=2) as engine:
        pinned = []
        for version in range(1, 7):
            engine.publish("a", make_adapter(version), scale=1.0, version=version)
            pinned.append(engine.submit(work("a", 4)[0]))
            engine.step()
        assert len(engine._runner._recent) == 3
        assert len(engine._bank._used) == 4  # base, and versions 4 to 6: the first three completions have ended
        found = {}
        while engine.busy:
            found.update((c.request_id, c) for c in engine.step())
        assert all(found[i].policy_version == v for v, i in enumerate(pinned, start=1) if i in found)
        assert len(engine._bank._used) == 2
        engine.unpublish("a")
        assert len(engine._bank._used) == 1
        assert engine.adapters() == {}
        with pytest.raises(ValueError, match="no adapter 'a' is published"):
            engine.unpublish("a")


def test_the_trainers_model_is_not_touched(random_model: tuple[Any, Any], make_adapter: MakeAdapter) -> None:
    model = random_model[0]
    before = {name: id(array) for name, array in tree_flatten(model.parameters())}
    logits = np.array(model(mx.array([PROMPTS[0]])))
    trained = with_lora(model, make_adapter(1), 4, 1.0)
    with Engine(trained, None) as engine:
        assert [type(m) for m in trained.modules()].count(LoRALinear) == 14
        # The copy sees through the LoRA layers, and shares the arrays of the base.
        assert np.allclose(engine.next_logits([PROMPTS[0]])[0], logits[0, -1], atol=1e-4)
        engine.publish("a", make_adapter(2), scale=1.0, version=1)
        q_proj = engine._bank._layers["model.layers.0.self_attn.q_proj"]
        assert q_proj.linear.weight is model.model.layers[0].self_attn.q_proj.weight
    assert {name: id(array) for name, array in tree_flatten(model.parameters())} == before
    assert np.array_equal(np.array(model(mx.array([PROMPTS[0]]))), logits)


def test_published_weights_do_not_follow_the_callers_arrays(engine: Engine, make_adapter: MakeAdapter) -> None:
    weights = make_adapter(1)
    engine.publish("a", weights, scale=1.0, version=1)
    engine.next_logits([PROMPTS[0]], "a")  # from here on the prompt's beginning is kept
    before = engine.next_logits([PROMPTS[0]], "a")
    for array in weights.values():
        array[:] = 0.0
    assert np.array_equal(engine.next_logits([PROMPTS[0]], "a"), before)


def test_adapters_work_over_a_quantized_base(random_model: tuple[Any, Any], make_adapter: MakeAdapter) -> None:
    quantized = clone_structure(random_model[0])
    nn.quantize(quantized, group_size=32, bits=8, class_predicate=lambda _, m: isinstance(m, nn.Linear))
    weights = make_adapter(1)
    reference = with_lora(quantized, weights, 4, 1.0)
    with Engine(quantized, None) as engine:
        engine.publish("a", weights, scale=1.0, version=1)
        for adapter, model in (("a", reference), (None, quantized)):
            [completion] = engine.generate([query(PROMPTS[0], 5, adapter=adapter, stop_ids=frozenset())])
            expected = forward_logprobs(model, PROMPTS[0], completion.tokens)
            assert np.allclose(completion.logprobs, expected, atol=1e-4)
