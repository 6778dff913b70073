"""Attention in blocks, in numpy and within the graph: values, gradients, memory, and what mlx-lm's models get of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.forward import attention as module
from inference.forward import fastblas, fastmath, flash_attention
from inference.forward.attention import attention, causal
from inference.recurrence import install, quickly

SCALE = 0.3
WAYS = ("numpy", "graph")


def inputs(rows: int, heads: int, groups: int, size: int, span: int, width: int = 4, out: int = 5) -> list[mx.array]:
    """Queries, keys, values, and weights of the result's numbers."""
    rng = np.random.default_rng(rows * span + size)
    shapes = ((rows, heads, size, width), (rows, groups, span, width), (rows, groups, span, out))
    return [mx.array(rng.normal(0, 2, shape).astype(np.float32)) for shape in (*shapes, (rows, heads, size, out))]


def plainly(q: mx.array, k: mx.array, v: mx.array, seen: np.ndarray) -> mx.array:
    """All scores at once, query by query."""
    heads = q.shape[1] // k.shape[1]
    k, v = (mx.repeat(array, heads, axis=1) for array in (k, v))
    visible = mx.array(np.arange(k.shape[2]) < seen[:, None, :, None])
    return mx.softmax(mx.where(visible, SCALE * q @ k.swapaxes(-1, -2), -mx.inf), axis=-1) @ v


def values_and_slopes(f: Any, q: mx.array, k: mx.array, v: mx.array, weights: mx.array) -> list[np.ndarray]:
    def loss(*arrays: mx.array) -> tuple[mx.array, mx.array]:
        out = f(*arrays)
        return (out * weights).sum(), out

    (_, out), slopes = mx.value_and_grad(loss, (0, 1, 2))(q, k, v)
    return [np.asarray(array) for array in (out, *slopes)]


def agree(way: str, arrays: list[mx.array], seen: np.ndarray, long: int = 0) -> None:
    with pytest.MonkeyPatch.context() as patch, nullcontext() if way == "numpy" else fastmath.lazily():
        patch.setattr(module, "_LONG", long)
        patch.setattr(module, "_QUERIES", 3)
        patch.setattr(flash_attention, "_ROWS", 16)
        own = values_and_slopes(lambda q, k, v: attention(q, k, v, SCALE, seen), *arrays)
    for a, b in zip(own, values_and_slopes(lambda q, k, v: plainly(q, k, v, seen), *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("size", "span"), [(1, 1), (1, 9), (7, 7), (20, 20), (20, 33)])
def test_a_causal_pass_is_that_of_all_scores_at_once(way: str, size: int, span: int) -> None:
    agree(way, inputs(2, 6, 2, size, span), causal(size, span))


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_queries_see_any_number_of_keys_in_any_order(way: str, data: st.DataObject) -> None:
    rows, groups, heads = (data.draw(st.integers(1, 3)) for _ in range(3))
    size, span = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    shared = data.draw(st.booleans())
    counts = st.lists(st.integers(1, span), min_size=size, max_size=size)
    seen = np.array([data.draw(counts) for _ in range(1 if shared else rows)])
    agree(way, inputs(rows, heads * groups, groups, size, span), seen)


def test_short_rows_run_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(flash_attention, "_forward", lambda *_: calls.append(_) or (_[0], _[0]))
    q, k, v, _ = inputs(4, 2, 1, 8, 8)
    attention(q, k, v, SCALE, causal(8, 8))
    assert not calls, "a call per row and head costs more than it saves"
    agree("numpy", inputs(4, 2, 1, 8, 8), causal(8, 8), long=1 << 15)


def test_every_key_is_seen_without_a_list() -> None:
    q, k, v, _ = inputs(2, 4, 2, 6, 9)
    every = np.full((1, 6), 9)
    np.testing.assert_allclose(attention(q, k, v, SCALE, None), plainly(q, k, v, every), rtol=1e-4, atol=1e-5)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = fastblas.threads()
    fastblas.set_threads(2)
    yield
    fastblas.set_threads(before)


def test_two_threads_compute_what_one_does(two_threads: None) -> None:
    q, k, v, weights = inputs(3, 4, 2, 200, 260, width=8, out=8)

    def run() -> list[np.ndarray]:
        return values_and_slopes(lambda q, k, v: attention(q, k, v, SCALE, causal(200, 260)), q, k, v, weights)

    parallel = run()
    fastblas.set_threads(1)
    for a, b in zip(parallel, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("way", "most"), [("numpy", 0.2), ("graph", 0.7)])
def test_a_long_row_takes_less_memory_than_all_its_scores(way: str, most: float) -> None:
    arrays = inputs(1, 4, 2, 1024, 1024, width=8, out=8)

    def peak(f: Any) -> int:
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        values_and_slopes(f, *arrays)
        return mx.get_peak_memory() - before

    seen = causal(1024, 1024)
    with nullcontext() if way == "numpy" else fastmath.lazily():
        own = peak(lambda q, k, v: attention(q, k, v, SCALE, seen))
    assert own < most * peak(lambda q, k, v: plainly(q, k, v, seen))


def test_double_precision_keeps_its_digits() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (mx.array(rng.normal(size=(1, 2, 200, 4)), dtype=mx.float64) for _ in range(3))
    out = np.asarray(attention(q, k, v, SCALE, causal(200, 200)))
    scores = SCALE * np.asarray(q) @ np.asarray(k).swapaxes(-1, -2)
    powers = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(200)
    np.testing.assert_allclose(out, powers / powers.sum(-1, keepdims=True) @ np.asarray(v), rtol=1e-12)


@pytest.mark.parametrize("seen", [causal(5, 8), causal(8, 8), causal(1, 8), np.array([[3, 8, 1], [2, 2, 7]])])
def test_other_devices_get_the_mask_that_hides_the_same(seen: np.ndarray) -> None:
    q, k, v, _ = inputs(2, 4, 2, seen.shape[1], 8)
    mask = module._mask(seen, 8)
    assert isinstance(mask, str) == (len(seen) == 1), "for a causal mask there are kernels"
    out = mx.fast.scaled_dot_product_attention(q, k, v, scale=SCALE, mask=mask)
    np.testing.assert_allclose(out, attention(q, k, v, SCALE, seen), rtol=1e-4, atol=1e-5)


def test_a_learner_s_models_compute_causal_attention_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    q, k, v, _ = inputs(2, 4, 2, 300, 310)
    visible = mx.array(np.arange(310) < causal(300, 310)[..., None])
    sinks = mx.zeros(4)
    calls = []
    inner = module._block
    monkeypatch.setattr(module, "_block", lambda *args: calls.append(1) or inner(*args))

    def run(**more: Any) -> tuple[mx.array, int]:
        calls.clear()
        with fastmath.lazily():
            return mx.fast.scaled_dot_product_attention(q, k, v, scale=SCALE, **more), len(calls)

    plain = run(mask="causal")
    assert plain[1] == 0
    with quickly():
        quick, masked, sunk = run(mask="causal", sinks=None), run(mask=visible), run(mask="causal", sinks=sinks)
    assert (quick[1], masked[1], sunk[1]) == (3, 0, 0)
    np.testing.assert_allclose(quick[0], plain[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(masked[0], plain[0], rtol=1e-4, atol=1e-5)
    with quickly(), fastmath.lazily():
        half = [array.astype(mx.float16) for array in (q, k, v)]
        assert mx.fast.scaled_dot_product_attention(*half, scale=SCALE, mask="causal").dtype == mx.float16
    with quickly():  # left to MLX, which has a meaning for both
        assert mx.fast.scaled_dot_product_attention(q[:, :, :0], k, v, scale=SCALE, mask="causal").shape[2] == 0
        mx.eval(mx.fast.scaled_dot_product_attention(q, k[:, :, :200], v[:, :, :200], scale=SCALE, mask="causal"))


@pytest.mark.parametrize("way", WAYS)
def test_keys_and_values_in_half_precision_are_widened(way: str) -> None:
    q, k, v, weights = inputs(1, 2, 2, 200, 210)
    half = [q, *(array.astype(mx.bfloat16) for array in (k, v)), weights]
    widened = [half[0], *(array.astype(mx.float32) for array in half[1:3]), weights]

    def out(arrays: list[mx.array]) -> mx.array:
        with nullcontext() if way == "numpy" else fastmath.lazily():
            return attention(*arrays[:3], SCALE, causal(200, 210))

    assert out(half).dtype == mx.float32 and mx.array_equal(out(half), out(widened))


def test_a_key_that_is_not_a_number_reaches_only_those_who_see_it() -> None:
    q, k, v, _ = inputs(1, 2, 2, 200, 210)
    k[:, :, 205] = mx.nan
    bad = np.isnan(np.asarray(attention(q, k, v, SCALE, causal(200, 210)))).any(axis=(0, 1, 3))
    assert bad.tolist() == [position + 10 >= 205 for position in range(200)]
