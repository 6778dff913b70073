"""Replaces mlx-lm's recurrences with the chunkwise ones and, for a learner, what else MLX computes slowly on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx
from mlx import nn

from inference.forward import blocks, fastmath

SHORTEST = 8
"""Fewer positions than this, as in decoding, are left to mlx-lm's step."""
_QUICKLY: ContextVar[bool] = ContextVar("quickly", default=False)


@contextmanager
def quickly() -> Iterator[None]:
    """Within this context, on Linux CPUs, models compute `nn.silu`, causal attention and short convolutions as
    fastmath.py, attention.py and short_convolution.py do, which is faster where many positions are computed, with or
    without a gradient.

    Only after `install`. On a CPU `mx.compile` is switched off for the process, since it cannot trace them.
    """
    if mx.default_device().type == mx.DeviceType.cpu:
        mx.disable_compile()
    before = _QUICKLY.set(True)
    try:
        yield
    finally:
        _QUICKLY.reset(before)


def install() -> None:
    """Makes mlx-lm's gated-delta and Mamba 2 layers compute in chunks where they have no kernel; see also `quickly`.

    mlx-lm chooses: in evaluation mode on Metal its kernels, which have no gradient; in training mode, and on other
    devices, the functions replaced here. Calling it again does nothing.
    """
    from mlx_lm.models import gated_delta, ssm

    from inference.recurrence.gated_delta import chunked_gated_delta
    from inference.recurrence.short_convolution import short_convolution, takes
    from inference.recurrence.ssd import chunked_ssd

    step, scan = gated_delta.gated_delta_ops, ssm.ssm_attn
    gate, convolve, attend = nn.silu, nn.Conv1d.__call__, mx.fast.scaled_dot_product_attention
    if hasattr(step, "__wrapped__"):
        return

    @functools.wraps(step)
    def gated_delta_ops(q: mx.array, k: mx.array, *args: Any, **kwargs: Any) -> tuple[mx.array, mx.array]:
        return (step if q.shape[1] < SHORTEST else chunked_gated_delta)(q, k, *args, **kwargs)

    @functools.wraps(scan)
    def ssm_attn(x: mx.array, *args: Any, **kwargs: Any) -> tuple[mx.array, mx.array]:
        return (scan if x.shape[1] < SHORTEST else chunked_ssd)(x, *args, **kwargs)

    gated_delta.gated_delta_ops, ssm.ssm_attn = gated_delta_ops, ssm_attn

    @functools.wraps(gate)
    def silu(x: mx.array) -> mx.array:
        return fastmath.silu(x) if _QUICKLY.get() and fastmath.in_software(x) else gate(x)

    @functools.wraps(convolve)
    def conv1d(self: nn.Conv1d, x: mx.array) -> mx.array:
        if not _QUICKLY.get() or not fastmath.in_software(x) or not takes(self, x):
            return convolve(self, x)
        y = short_convolution(x, self.weight)
        return y + self.bias if "bias" in self else y

    @functools.wraps(attend)
    def fast_attention(
        q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: Any = None, **more: Any
    ) -> mx.array:
        causally = isinstance(mask, str) and mask == "causal" and all(value is None for value in more.values())
        usual = 0 < q.shape[2] <= k.shape[2]
        if not (_QUICKLY.get() and fastmath.in_software(q) and causally and usual):
            return attend(q, k, v, scale=scale, mask=mask, **more)
        return blocks.attention(q, k, v, scale, blocks.causal(q.shape[2], k.shape[2]))

    nn.silu, nn.Conv1d.__call__ = silu, conv1d  # type: ignore[method-assign]
    mx.fast.scaled_dot_product_attention = fast_attention
