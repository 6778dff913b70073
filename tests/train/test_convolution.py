"""Depthwise convolutions as shifted products: MLX's numbers and gradients; other convolutions are left alone."""

from __future__ import annotations

import mlx.core as mx
import pytest
from mlx import nn

from legos_train.model.convolution import ShiftedConv1d, shift_convolutions


@pytest.mark.parametrize("bias", [False, True])
def test_the_numbers_and_gradients_are_mlxs(bias: bool) -> None:
    own, other = (nn.Conv1d(6, 6, 4, groups=6, bias=bias) for _ in range(2))
    other.update(own.parameters())
    shift_convolutions(own)
    assert type(own) is ShiftedConv1d or mx.default_device().type != mx.DeviceType.cpu
    x = mx.random.normal((2, 11, 6))
    assert mx.allclose(own(x), other(x), atol=1e-6)

    def slopes(module: nn.Module) -> tuple[mx.array, dict[str, mx.array]]:
        def loss(x: mx.array, parameters: dict[str, mx.array]) -> mx.array:
            module.update(parameters)
            return (module(x) ** 2).sum()

        return mx.grad(loss, argnums=(0, 1))(x, module.parameters())

    (dx, dp), (expected_dx, expected_dp) = slopes(own), slopes(other)
    assert mx.allclose(dx, expected_dx, atol=1e-5)
    assert all(mx.allclose(dp[name], expected_dp[name], atol=1e-4) for name in expected_dp)


@pytest.mark.parametrize(
    "options", [{"groups": 1}, {"groups": 6, "stride": 2}, {"groups": 6, "padding": 1}, {"groups": 6, "dilation": 2}]
)
def test_others_are_left_alone(options: dict[str, int]) -> None:
    module = nn.Conv1d(6, 6, 4, **options)
    shift_convolutions(module)
    assert type(module) is nn.Conv1d
