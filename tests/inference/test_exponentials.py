"""Exponentials as powers of two, and what is installed into MLX's own layers: the numbers stay MLX's."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models import activations

from inference.forward import exponentials, fastmath
from inference.recurrence import install, quickly

X = mx.array(np.random.default_rng(0).normal(0, 4, (6, 40)).astype(np.float32))


def exact(name: str, x: mx.array) -> np.ndarray:
    x = np.asarray(x).astype(np.float64)
    powers = np.exp(x - x.max(-1, keepdims=True))
    return {"exp": np.exp(x), "silu": x / (1 + np.exp(-x)), "softmax": powers / powers.sum(-1, keepdims=True)}[name]


MLX = {"exp": mx.exp, "silu": lambda x: x * mx.sigmoid(x), "softmax": lambda x: mx.softmax(x, axis=-1, precise=True)}


@pytest.mark.parametrize("name", MLX)
def test_values_and_gradients_are_mlx_s(name: str) -> None:
    own, other = getattr(exponentials, name), MLX[name]
    assert exponentials.in_software(X), "the powers are what runs here"
    np.testing.assert_allclose(np.asarray(own(X)), exact(name, X), rtol=2e-6, atol=1e-12)
    weights = mx.array(np.random.default_rng(1).normal(size=X.shape).astype(np.float32))
    gradients = [mx.grad(lambda x, f=f: (weights * f(x)).sum())(X) for f in (own, other)]
    np.testing.assert_allclose(*map(np.asarray, gradients), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [mx.float16, mx.bfloat16])
@pytest.mark.parametrize("name", MLX)
def test_half_precision_is_left_to_mlx(name: str, kind: mx.Dtype) -> None:
    x = mx.clip(X, -9, 9).astype(kind)
    assert not exponentials.in_software(x)
    assert mx.array_equal(getattr(exponentials, name)(x), MLX[name](x))


def test_far_out_nothing_overflows() -> None:
    x = mx.array([-1e4, -200.0, -90.0, 0.0, 90.0, 200.0, 1e4])
    value, gradient = exponentials.silu(x), mx.grad(lambda x: exponentials.silu(x).sum())(x)
    np.testing.assert_allclose(np.asarray(value), [0, 0, 0, 0, 90, 200, 1e4], atol=1e-6)
    np.testing.assert_allclose(np.asarray(gradient), [0, 0, 0, 0.5, 1, 1, 1], atol=1e-6)
    hidden = mx.array([[1.0, -mx.inf, 3.0], [-mx.inf, -mx.inf, -1e4]])
    share, slope = exponentials.softmax(hidden), mx.grad(lambda x: exponentials.softmax(x)[:, 2].sum())(hidden)
    np.testing.assert_allclose(np.asarray(share), [[0.1192029, 0, 0.8807971], [0, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(slope), [[-0.1049936, 0, 0.1049936], [0, 0, 0]], rtol=1e-5)
    assert mx.grad(lambda x: exponentials.exp(x).sum())(mx.array([-mx.inf, 0.0])).tolist() == [0, 1]


def test_the_lazy_functions_agree_with_numpy_s() -> None:
    seen = mx.array(np.random.default_rng(2).random(X.shape) < 0.7) | (mx.arange(40) == 0)
    calls = (
        lambda x: fastmath.softmax(x),
        lambda x: fastmath.softmax(x, seen),
        lambda x: fastmath.swiglu(x, 1.0 - x),
        lambda x: fastmath.distribution(x)[0] * fastmath.distribution(x)[1],
    )
    for call in calls:
        sides = []
        for lazy in (False, True):

            def both(x: mx.array, lazy: bool = lazy, call=call) -> mx.array:
                if not lazy:
                    return (call(x) * X).sum()
                with fastmath.lazily():
                    return (call(x) * X).sum()

            sides.append([np.asarray(a) for a in mx.value_and_grad(both)(X)])
        np.testing.assert_allclose(sides[0][0], sides[1][0], rtol=1e-5)
        np.testing.assert_allclose(sides[0][1], sides[1][1], rtol=1e-4, atol=1e-5)


def test_the_gate_of_mlx_s_models_is_replaced_for_a_learner_alone() -> None:
    install()
    own, half = nn.silu.__wrapped__, X.astype(mx.bfloat16)
    assert not mx.array_equal(own(X), exponentials.silu(X)), "they differ in some last digit"
    assert mx.array_equal(nn.silu(X), own(X))
    with quickly():
        assert mx.array_equal(nn.silu(X), exponentials.silu(X)) and mx.array_equal(nn.silu(half), own(half))
    assert mx.array_equal(nn.silu(X), own(X))


def test_models_can_be_compiled_outside_a_learner() -> None:
    install()
    up = mx.ones((2, 3))
    with quickly():
        pass
    mx.enable_compile()
    try:
        for width in (3, 5):  # mlx-lm compiles it for all shapes at once
            mx.eval(activations.swiglu(mx.ones((2, width)), mx.ones((2, width))))
        with quickly():
            assert mx.array_equal(activations.swiglu(up, up), exponentials.silu(up) * up)
    finally:
        mx.disable_compile()


def failing(*_: object) -> None:
    raise AssertionError("MLX's own convolution ran")


@pytest.mark.parametrize("bias", [False, True])
def test_short_convolutions(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    layer = nn.Conv1d(12, 12, 4, groups=12, bias=bias)
    if bias:
        layer.bias = mx.arange(12) / 12
    x = mx.random.normal((2, 11, 12), key=mx.random.key(0))

    def loss(weights: dict, x: mx.array) -> mx.array:
        layer.update(weights)
        return (layer(x) ** 2).sum()

    weights = layer.parameters()
    theirs = layer(x), mx.grad(loss, argnums=(0, 1))(weights, x)
    monkeypatch.setattr(mx, "conv1d", failing)
    with quickly():
        ours = layer(x), mx.grad(loss, argnums=(0, 1))(weights, x)
        with pytest.raises(AssertionError, match="own convolution"):
            layer(x.astype(mx.bfloat16))
    with pytest.raises(AssertionError, match="own convolution"):
        layer(x)
    np.testing.assert_allclose(np.asarray(ours[0]), np.asarray(theirs[0]), rtol=1e-5, atol=1e-6)
    for name in weights:
        np.testing.assert_allclose(*(np.asarray(side[1][0][name]) for side in (ours, theirs)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(*(np.asarray(side[1][1]) for side in (ours, theirs)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(12, 12, 4, groups=12, stride=2), (2, 11, 12)),
        (nn.Conv1d(12, 12, 4, groups=12, padding=1), (2, 11, 12)),
        (nn.Conv1d(12, 12, 4, groups=12, dilation=2), (2, 11, 12)),
        (nn.Conv1d(12, 24, 4, groups=12), (2, 11, 12)),
        (nn.Conv1d(12, 12, 4, groups=6), (2, 11, 12)),
        (nn.Conv1d(12, 12, 4), (2, 11, 12)),
        (nn.Conv1d(12, 12, 4, groups=12), (2, 11, 1)),
        (nn.Conv1d(12, 12, 4, groups=12), (2, 3, 12)),
        (nn.Conv1d(12, 12, 4, groups=12), (11, 12)),
    ],
)
def test_other_convolutions_are_left_to_mlx(
    layer: nn.Conv1d, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    monkeypatch.setattr(mx, "conv1d", failing)
    with quickly(), pytest.raises(AssertionError, match="own convolution"):
        layer(mx.zeros(shape))
