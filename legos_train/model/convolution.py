"""Depthwise convolutions over positions, as hybrid models have before their recurrences, as sums of shifted products.

MLX's CPU backend computes them channel by channel: forward and backward take six times as long as the few products.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn


class ShiftedConv1d(nn.Conv1d):
    """A depthwise `nn.Conv1d` of stride 1 without padding or dilation: (B, T + K - 1, C) -> (B, T, C)."""

    def __call__(self, x: mx.array) -> mx.array:
        taps = self.weight.shape[1]
        length = x.shape[1] - taps + 1
        y = x[:, :length] * self.weight[:, 0, 0]
        for tap in range(1, taps):
            y = y + x[:, tap : tap + length] * self.weight[:, tap, 0]
        return y + self.bias if "bias" in self else y


def shift_convolutions(model: nn.Module) -> None:
    """On a CPU, makes the model's depthwise convolutions `ShiftedConv1d`; parameters stay what and where they are."""
    if mx.default_device().type != mx.DeviceType.cpu:
        return
    for module in model.modules():
        if type(module) is not nn.Conv1d or (module.stride, module.padding, module.dilation) != (1, 0, 1):
            continue
        channels, _, inputs = module.weight.shape
        if inputs == 1 and module.groups == channels:
            module.__class__ = ShiftedConv1d
