"""Softmax, SwiGLU and log-probabilities whose exponentials are vectorised on the CPU.

MLX's CPU backend takes exponentials one element at a time, 12-25 ns each, which makes them most of the cost of running
a small model. numpy's are vectorised, ten times faster. So on the CPU and in float32 these functions compute in numpy,
inside the autograd graph, with hand-written gradients, a block at a time so that each pass finds the previous one's
output in the processor's cache. The same holds in float64, where MLX's exponential is only accurate to float32.
Everywhere else they are those of exponentials.py.

numpy needs concrete numbers, so each function makes MLX evaluate all its inputs while the graph is still being built,
and the graph keeps them. For a large gradient that takes several times the memory of evaluating the graph as a whole,
and exponentials are a small part of its time: inside `lazily()` all functions use those of exponentials.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import mlx.core as mx
import numpy as np

from inference.forward import exponentials
from inference.forward.exponentials import in_software, silu

__all__ = ["distribution", "exp", "in_numpy", "in_software", "lazily", "sigmoid", "silu", "softmax", "swiglu"]

NEGLIGIBLE = 1e-20
"""A recurrence takes factors closer to 0 for 0: nothing survives them. Otherwise products of nearly closed gates become
subnormal numbers, with which a CPU takes many times as long."""

_BLOCK = 1 << 15  # numbers processed at a time: 128 KiB of float32, part of a level 2 cache


_LAZY: ContextVar[bool] = ContextVar("lazy", default=False)  # of this thread only: an engine may run in another


@contextmanager
def lazily() -> Iterator[None]:
    """Evaluates nothing while a graph is built inside this context."""
    before = _LAZY.set(True)
    try:
        yield
    finally:
        _LAZY.reset(before)


def in_numpy(x: mx.array) -> bool:
    """Whether functions of `x` are computed in numpy."""
    if _LAZY.get():
        return False
    return x.dtype in (mx.float32, mx.float64) and mx.default_device().type == mx.DeviceType.cpu


def _new(like: np.ndarray) -> tuple[mx.array, np.ndarray]:
    """An array to fill, and the view to fill it through: MLX would copy a finished numpy array."""
    array = mx.zeros(like.shape, dtype=mx.float64 if like.dtype == np.float64 else mx.float32)
    return array, np.asarray(array)


def _blocks(x: np.ndarray) -> Iterator[slice]:
    """Slices of the first axis, about _BLOCK numbers each; a vector is one block, for functions over its last axis."""
    step = max(1, _BLOCK * len(x) // max(x.size, 1)) if x.ndim > 1 else max(len(x), 1)
    return (slice(start, start + step) for start in range(0, len(x), step))


def softmax(x: mx.array, seen: mx.array | None = None) -> mx.array:
    """Over the last axis; -inf gives 0, and so does an entry where `seen` (boolean, broadcasts to x) is false.

    Every row needs one finite value that is seen.
    """
    if not in_numpy(x):
        return exponentials.softmax(x if seen is None else mx.where(seen, x, -mx.inf))
    return cast(mx.array, _softmax(x) if seen is None else _masked_softmax(x, seen))


@mx.custom_function
def _softmax(x: mx.array) -> Any:
    return _normalised(np.asarray(x), None)


@mx.custom_function
def _masked_softmax(x: mx.array, seen: mx.array) -> Any:
    # Adding 0 or -inf is a pass within the cache; selecting would be a pass through memory, plus one more backward.
    hidden = np.where(np.asarray(seen), np.float32(0.0), np.float32(-np.inf))
    return _normalised(np.asarray(x), hidden.reshape((1,) * (x.ndim - hidden.ndim) + hidden.shape))


def _normalised(x: np.ndarray, hidden: np.ndarray | None) -> mx.array:
    array, out = _new(x)
    for block in _blocks(x):
        part = out[block]
        if hidden is None:
            np.subtract(x[block], x[block].max(axis=-1, keepdims=True), out=part)
        else:
            np.add(x[block], hidden if len(hidden) == 1 else hidden[block], out=part)
            part -= part.max(axis=-1, keepdims=True)
        np.exp(part, out=part)
        part /= part.sum(axis=-1, keepdims=True)
    return array


@_softmax.vjp
def _softmax_vjp(x: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    return _softmax_gradient(cotangent, out)


@_masked_softmax.vjp
def _masked_softmax_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, out: mx.array) -> Any:
    return _softmax_gradient(cotangent, out), mx.zeros_like(primals[1])


def _softmax_gradient(cotangent: mx.array, out: mx.array) -> mx.array:
    """y * (c - sum(y * c)), where y is the softmax and c the gradient that reaches it."""
    c, y = np.asarray(cotangent), np.asarray(out)
    array, result = _new(y)
    for block in _blocks(y):
        part = result[block]
        total = np.einsum("...i,...i->...", c[block], y[block])[..., None]
        np.subtract(c[block], total, out=part)
        part *= y[block]
    return array


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """`gate * sigmoid(gate) * up`, elementwise."""
    return cast(mx.array, _swiglu(gate, up)) if in_numpy(gate) and in_numpy(up) else exponentials.silu(gate) * up


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function, in a new array."""
    out = np.negative(x)
    np.minimum(out, 88.0, out=out)  # exp overflows float32 beyond; sigmoid is below 1e-38 there
    np.exp(out, out=out)
    out += 1.0
    return np.reciprocal(out, out=out)


@mx.custom_function
def _swiglu(gate: mx.array, up: mx.array) -> Any:
    mx.eval(gate, up)
    g, u = _flat(gate), _flat(up)
    array, out = _new(np.asarray(gate))
    flat = out.reshape(g.shape)
    for block in _blocks(g):
        part = sigmoid(g[block])
        part *= g[block]
        np.multiply(part, u[block], out=flat[block])
    return array


@_swiglu.vjp
def _swiglu_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    g, u, c = (_flat(array) for array in (*primals, cotangent))
    (d_gate, gate), (d_up, up) = (_new(np.asarray(array)) for array in primals)
    gate, up = gate.reshape(g.shape), up.reshape(g.shape)
    for block in _blocks(g):
        s = sigmoid(g[block])
        silu = g[block] * s
        np.multiply(silu, c[block], out=up[block])
        np.subtract(1.0, s, out=gate[block])
        slope = gate[block]  # d silu = s + silu * (1 - s)
        slope *= silu
        slope += s
        slope *= u[block]
        slope *= c[block]
    return d_gate, d_up


def _flat(x: mx.array) -> np.ndarray:
    """(..., D) as (n, D)."""
    return np.asarray(x).reshape(-1, x.shape[-1] if x.ndim else 1)


def exp(x: mx.array) -> mx.array:
    """The exponential."""
    return cast(mx.array, _exp(x)) if in_numpy(x) else exponentials.exp(x)


@mx.custom_function
def _exp(x: mx.array) -> Any:
    values = np.asarray(x)
    array, out = _new(values)
    with np.errstate(over="ignore"):
        np.exp(values, out=out)
    return array


@_exp.vjp
def _exp_vjp(x: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
    return cotangent * out


def distribution(logits: mx.array) -> tuple[mx.array, mx.array]:
    """(K, V) -> log-probabilities and probabilities (K, V), with one exponential per element, including the gradient.

    `mx.logsumexp` takes one more in its gradient, and `exp(logprobs)` would take another.
    """
    if in_numpy(logits):
        return cast(tuple[mx.array, mx.array], _distribution(logits))
    shifted = logits - mx.stop_gradient(mx.max(logits, axis=-1, keepdims=True))
    powers = exponentials.exp(shifted)
    total = mx.sum(powers, axis=-1, keepdims=True)
    return shifted - mx.log(total), powers / total


@mx.custom_function
def _distribution(logits: mx.array) -> Any:
    x = np.asarray(logits)
    (logprobs, log_p), (probs, p) = _new(x), _new(x)
    for block in _blocks(x):
        np.subtract(x[block], x[block].max(axis=-1, keepdims=True), out=log_p[block])
        np.exp(log_p[block], out=p[block])
        total = p[block].sum(axis=-1, keepdims=True)
        log_p[block] -= np.log(total)
        p[block] /= total
    return logprobs, probs


@_distribution.vjp
def _distribution_vjp(logits: mx.array, cotangents: tuple[mx.array, mx.array], outs: tuple[mx.array, mx.array]) -> Any:
    """a + p * (b - sum(a) - sum(p * b)), where a and b are the gradients that reach logprobs and probs."""
    mx.eval(cotangents, outs)
    a, b, p = (np.asarray(array) for array in (*cotangents, outs[1]))
    array, out = _new(p)
    with np.errstate(invalid="ignore", over="ignore"):  # non-finite values are left to the caller
        for block in _blocks(p):
            total = a[block].sum(axis=-1) + np.einsum("...i,...i->...", p[block], b[block])
            np.subtract(b[block], total[..., None], out=out[block])
            out[block] *= p[block]
            out[block] += a[block]
    return array
