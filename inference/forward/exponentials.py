"""Exponentials as powers of two, which MLX's CPU backend on Linux computes two to three times as fast.

There MLX computes e^x itself, one number at a time, in 12-25 ns; a power is the C library's, in 4. Unlike the functions
of fastmath.py, which use numpy, these stay part of the graph: nothing is evaluated while it is built. Other devices,
systems and types get MLX's own. With |x| up to 20 the result differs from e^x by less than 2e-6 of itself.
"""

from __future__ import annotations

import math
import sys
from typing import Any, cast

import mlx.core as mx

_LOG2_E = 1.0 / math.log(2.0)
_TINY = 1e-20


def in_software(x: mx.array) -> bool:
    """Whether MLX would compute the exponentials of an array one by one itself."""
    return sys.platform == "linux" and x.dtype == mx.float32 and mx.default_device().type == mx.DeviceType.cpu


def exp(x: mx.array) -> mx.array:
    """The exponential."""
    return mx.power(2.0, x * _LOG2_E) if in_software(x) else mx.exp(x)


def silu(x: mx.array) -> mx.array:
    """`x * sigmoid(x)`."""
    return cast(mx.array, _silu(x)) if in_software(x) else x * mx.sigmoid(x)


def softmax(x: mx.array) -> mx.array:
    """Over the last axis; -inf gives 0. Every row needs one finite value."""
    return cast(mx.array, _softmax(x)) if in_software(x) else mx.softmax(x, axis=-1, precise=True)


def _sigmoid(x: mx.array) -> mx.array:
    return 1.0 / (1.0 + exp(-x))


@mx.custom_function
def _silu(x: mx.array) -> Any:
    return x * _sigmoid(x)


@_silu.vjp
def _silu_vjp(x: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    share = mx.where(mx.abs(x) > _TINY, out / x, 0.5)  # the sigmoid, without another exponential
    return cotangent * (share + out * (1.0 - share))


@mx.custom_function
def _softmax(x: mx.array) -> Any:
    powers = exp(x - mx.max(x, axis=-1, keepdims=True))
    return powers / mx.sum(powers, axis=-1, keepdims=True)


@_softmax.vjp
def _softmax_vjp(x: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    weighted = cotangent * out
    return weighted - out * mx.sum(weighted, axis=-1, keepdims=True)
