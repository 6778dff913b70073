"""The chunkwise recurrences against the recurrences themselves, in float64, and against mlx-lm's loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import gated_delta, ssm

from inference.forward import host_delta
from inference.recurrence import chunked_gated_delta, chunked_ssd, install
from inference.recurrence.decay import windows
from inference.recurrence.triangular import unit_lower_inverse

B, HK, HV, DK, DV = 2, 2, 4, 16, 8
Arrays = list[mx.array]


@pytest.fixture(autouse=True, scope="module")
def _no_compiler() -> None:
    mx.disable_compile()


def numbers(length: int, per_channel: bool, *, decay: float = 1.0, seed: int = 0) -> Arrays:
    """q, k, v, g, beta, state. With `decay` 100 many gates underflow; some positions repeat the key before."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape)

    k = draw(B, length, HK, DK)
    k[:, 1::3] = k[:, : length - 1 : 3][:, : k[:, 1::3].shape[1]]
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = np.exp(-decay * rng.exponential(size=(B, length, HV, DK) if per_channel else (B, length, HV)))
    beta = rng.uniform(0, 2, size=(B, length, HV))
    arrays = (draw(B, length, HK, DK), k, draw(B, length, HV, DV), g, beta, draw(B, HV, DV, DK))
    return [mx.array(a.astype(np.float32)) for a in arrays]


def recurrence(arrays: Arrays, mask: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule, position by position."""
    q, k, v, g, beta, state = (np.asarray(a).astype(np.float64) for a in arrays)
    q, k = (np.repeat(a, HV // HK, axis=2) for a in (q, k))
    outputs = np.zeros(v.shape)
    for t in range(q.shape[1]):
        gate = g[:, t, :, None, :] if g.ndim == 4 else g[:, t, :, None, None]
        left = state * gate
        wrong = v[:, t] - np.einsum("bhvk,bhk->bhv", left, k[:, t])
        new = left + (beta[:, t, :, None] * wrong)[..., None] * k[:, t, :, None, :]
        seen = np.ones(B, bool) if mask is None else mask[:, t]
        outputs[seen, t] = np.einsum("bhvk,bhk->bhv", new, q[:, t])[seen]
        state = np.where(seen[:, None, None, None], new, state)
    return outputs, state


def off(a: Any, b: Any) -> float:
    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    assert np.isfinite(a).all()
    return float(np.abs(a - b).max() / (1e-30 + np.abs(b).max()))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("length", [1, 5, 32, 64, 150])
@pytest.mark.parametrize("decay", [0.1, 100.0])
def test_chunks_are_the_recurrence(length: int, per_channel: bool, decay: float) -> None:
    arrays = numbers(length, per_channel, decay=decay)
    for mask in (None, np.random.default_rng(1).random((B, length)) > 0.3):
        y, state = chunked_gated_delta(*arrays, None if mask is None else mx.array(mask))
        expected_y, expected_state = recurrence(arrays, mask)
        assert max(off(y, expected_y), off(state, expected_state)) < 1e-5


def slopes(rule: Callable[..., Any], arrays: Arrays, weigh: mx.array) -> Arrays:
    def loss(*args: mx.array) -> mx.array:
        y, state = rule(*args)
        return (y * weigh).sum() + (state * state).sum()

    return mx.grad(loss, argnums=list(range(len(arrays))))(*arrays)


@pytest.mark.quick(2)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("decay", [0.3, 100.0])
def test_gradients_are_those_of_the_loop(per_channel: bool, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.recurrence.gated_delta.SEGMENT", 256)  # several segments
    arrays = numbers(100, per_channel, decay=decay)
    mask = np.random.default_rng(1).random((B, 100)) > 0.3
    weigh = mx.array(np.random.default_rng(2).normal(size=(B, 100, HV, DV)) * mask[..., None, None])
    loop = getattr(gated_delta.gated_delta_ops, "__wrapped__", gated_delta.gated_delta_ops)
    found = slopes(lambda *a: chunked_gated_delta(*a, mx.array(mask)), arrays, weigh)
    expected = slopes(lambda *a: loop(*a, mx.array(mask)), arrays, weigh)
    assert max(off(a, b) for a, b in zip(found, expected, strict=True)) < 1e-5


def test_a_closed_gate_has_the_gradient_of_the_loop() -> None:
    arrays = numbers(40, per_channel=False)
    arrays[3] = mx.where(mx.arange(40)[:, None] % 10 == 5, 0.0, arrays[3])
    loop = getattr(gated_delta.gated_delta_ops, "__wrapped__", gated_delta.gated_delta_ops)
    weigh = mx.ones((B, 40, HV, DV))
    assert off(slopes(chunked_gated_delta, arrays, weigh)[3], slopes(loop, arrays, weigh)[3]) < 1e-5


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_closed_gate_lets_nothing_earlier_through(per_channel: bool) -> None:
    """However large it was: a millionth of it would be seen here."""
    arrays = numbers(40, per_channel)
    place = mx.arange(40)
    arrays[2] = mx.where((place < 20)[:, None, None], 1e4, 1.0) * arrays[2]
    arrays[3] = mx.where((place == 20).reshape(40, *[1] * (arrays[3].ndim - 2)), 0.0, arrays[3])
    y, state = chunked_gated_delta(*arrays)
    expected_y, expected_state = recurrence(arrays)
    assert max(off(y[:, 20:], expected_y[:, 20:]), off(state, expected_state)) < 1e-5


def test_equal_keys_do_not_lose_digits() -> None:
    """The powers of the matrix that is inverted reach 1e17 here; its inverse has entries of 0 and 1."""
    arrays = numbers(64, per_channel=False)
    arrays[1] = mx.broadcast_to(arrays[1][:, :1], arrays[1].shape)
    arrays[3], arrays[4] = mx.ones_like(arrays[3]), mx.ones_like(arrays[4])
    y, state = chunked_gated_delta(*arrays)
    expected_y, expected_state = recurrence(arrays)
    assert max(off(y, expected_y), off(state, expected_state)) < 1e-5


def test_half_precision_goes_in_and_out_but_sums_are_whole() -> None:
    arrays = numbers(150, per_channel=False, decay=0.01)
    half = [a.astype(mx.bfloat16) for a in arrays[:3]] + arrays[3:5]
    y, state = chunked_gated_delta(*half)
    assert (y.dtype, state.dtype) == (mx.bfloat16, mx.float32)
    exact = recurrence([*(a.astype(mx.float32) for a in half), mx.zeros_like(arrays[5])])
    assert off(y.astype(mx.float32), exact[0]) < 8e-3  # the last rounding alone is 4e-3
    assert off(state, exact[1]) < 1e-5


def ssd_numbers(length: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = ((B, length, HV, DV), (HV,), (B, length, HK, DK), (B, length, HK, DK), (HV,), (B, length, HV), (HV,))
    return [mx.array(rng.normal(size=shape).astype(np.float32)) for shape in (*shapes, (B, HV, DV, DK))]


@pytest.mark.parametrize("length", [8, 64, 150])
@pytest.mark.parametrize("masked", [False, True])
def test_mamba_2_is_mlx_lms(length: int, masked: bool) -> None:
    arrays, lengths = ssd_numbers(length), mx.array([length - 3, length])
    mask = mx.arange(length) < lengths[:, None]
    options = {"mask": mask, "lengths": lengths} if masked else {}
    seen = mask[..., None, None] if masked else 1.0
    whole = getattr(ssm.ssm_attn, "__wrapped__", ssm.ssm_attn)
    found, expected = chunked_ssd(*arrays, **options), whole(*arrays, **options)
    assert off(found[0] * seen, expected[0] * seen) < 1e-5
    assert off(found[1], expected[1]) < 1e-5
    weigh = seen * mx.array(np.random.default_rng(2).normal(size=(B, length, HV, DV)).astype(np.float32))
    slopes_found = slopes(lambda *a: chunked_ssd(*a, **options), arrays, weigh)
    slopes_expected = slopes(lambda *a: whole(*a, **options), arrays, weigh)
    assert max(off(a, b) for a, b in zip(slopes_found, slopes_expected, strict=True) if mx.any(b != 0)) < 1e-5


def tiny_numbers(x: Any) -> int:
    """How many numbers are so small that a CPU computes slowly with them, or with their products."""
    size = np.abs(np.asarray(x))
    return int(((size > 0) & (size < 9e-21)).sum())


def test_nearly_closed_gates_make_no_subnormal_numbers() -> None:
    gates = np.random.default_rng(0).uniform(1e-9, 1e-6, (2, 64, 1)).astype(np.float32)
    assert tiny_numbers(np.cumprod(gates, axis=1)) > 0
    assert tiny_numbers(windows(mx.array(gates))) == 0
    corrections = np.stack([np.eye(64, k=-1, dtype=np.float32) * 1e-6] * 2)
    expected = np.linalg.inv(np.eye(64) + corrections.astype(np.float64))
    for inverse in (unit_lower_inverse(mx.array(corrections)), host_delta._inverse(corrections)):
        assert tiny_numbers(inverse) == 0
        assert off(inverse, expected) < 1e-7
    assert tiny_numbers(host_delta._factors(np.linspace(-120.0, 0.0, 1000))) == 0


@pytest.mark.parametrize("per_channel", [False, True])
def test_memory_is_that_of_a_few_chunks(per_channel: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = [(1, 256, 1, 128)] * (4 if per_channel else 3) + [(1, 256, 1)] * (1 if per_channel else 2)
    q, k, v, g, beta = (mx.array((rng.random(shape) * 0.08).astype(np.float32)) for shape in shapes)

    def peak(layers: int) -> int:
        def loss(v: mx.array) -> mx.array:
            for _ in range(layers):
                v = chunked_gated_delta(q * v, k * v, v, g, beta)[0]
            return (v * v).sum()

        mx.eval(q, k, v, g, beta)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.grad(loss)(v))
        return mx.get_peak_memory() - before

    one = peak(1)
    assert one < 256 * 128 * 128 * 4 / (1 if per_channel else 3)  # a loop keeps four states for each position
    assert peak(8) < (3 if per_channel else 5) * one  # only with a gate per channel are chunks computed again


def test_models_of_mlx_lm_use_the_chunks() -> None:
    install()
    installed = gated_delta.gated_delta_ops
    install()
    assert gated_delta.gated_delta_ops is installed
    arrays = numbers(20, per_channel=False)
    assert all(mx.array_equal(a, b) for a, b in zip(installed(*arrays), chunked_gated_delta(*arrays), strict=True))
    short = [a[:, :1] for a in arrays[:5]] + arrays[5:]
    step = installed.__wrapped__
    assert all(mx.array_equal(a, b) for a, b in zip(installed(*short), step(*short), strict=True))
