"""Exponentials by numpy while pretraining on a CPU.

MLX's CPU build for x86 takes about 20 ns for one exponential, numpy 1.5 ns. In a model as small as this one, softmax and
SiLU then cost more than all matrix products together. Inside `numpy_exponentials()` the Qwen3 code of mlx_lm uses the
functions of this file, which are equal to MLX's to the last bits. Arrays are read where they lie, and copied back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import qwen3


def _view(array: mx.array) -> np.ndarray:
    return np.array(array, copy=False)


@mx.custom_function
def sigmoid(x: mx.array) -> mx.array:
    """1 / (1 + exp(-x)), any shape, float32."""
    with np.errstate(over="ignore"):  # exp(-x) may be inf: the answer is then 0
        y = np.exp(-_view(x))
    y += 1.0
    np.reciprocal(y, out=y)
    return mx.array(y)


@sigmoid.vjp
def _sigmoid_vjp(x: mx.array, cotangent: mx.array, y: mx.array) -> mx.array:
    return cotangent * (y * (1.0 - y))


@mx.custom_function
def causal_softmax(scores: mx.array) -> mx.array:
    """Softmax over keys of scores (B, H, L, L); the query at i sees the keys up to i."""
    s = _view(scores)
    length = s.shape[-1]
    mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    out = np.empty_like(s)
    for row, given in zip(out, s, strict=True):  # a row at a time stays in the cache
        np.add(given, mask, out=row)
        row -= row.max(-1, keepdims=True)
        np.exp(row, out=row)
        row /= row.sum(-1, keepdims=True)
    return mx.array(out)


@causal_softmax.vjp
def _causal_softmax_vjp(scores: mx.array, cotangent: mx.array, probs: mx.array) -> mx.array:
    out = np.empty(probs.shape, np.float32)
    for row, c, p in zip(out, _view(cotangent), _view(probs), strict=True):
        np.multiply(c, p, out=row)
        row -= p * row.sum(-1, keepdims=True)
    return mx.array(out)


@mx.custom_function
def log_softmax(logits: mx.array) -> mx.array:
    """Log-probabilities of logits (N, V)."""
    x = _view(logits)
    out = x - x.max(-1, keepdims=True)
    out -= np.log(np.exp(out).sum(-1, keepdims=True))
    return mx.array(out)


@log_softmax.vjp
def _log_softmax_vjp(logits: mx.array, cotangent: mx.array, logprobs: mx.array) -> mx.array:
    c = _view(cotangent)
    p = np.exp(_view(logprobs))
    p *= -c.sum(-1, keepdims=True)
    p += c
    return mx.array(p)


def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """silu(gate) * x."""
    return gate * sigmoid(gate) * x


def attention(queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any) -> mx.array:
    """Causal attention of queries (B, Hq, L, D) over keys and values (B, Hkv, L, D), heads in groups; no cache."""
    batch, heads, length, width = queries.shape
    if cache is not None or (mask != "causal" and length > 1):
        raise NotImplementedError("the pretraining attention is causal and takes no cache; leave numpy_exponentials()")
    groups = keys.shape[1]
    grouped = (queries * scale).reshape(batch, groups, (heads // groups) * length, width)
    scores = (grouped @ keys.swapaxes(2, 3)).reshape(batch, heads, length, length)
    probs = causal_softmax(scores).reshape(batch, groups, (heads // groups) * length, length)
    return (probs @ values).reshape(batch, heads, length, width)


@contextmanager
def numpy_exponentials() -> Iterator[None]:
    """Make mlx_lm's Qwen3 use this file's functions, in this process, for the length of the block."""
    before = qwen3.swiglu, qwen3.scaled_dot_product_attention
    qwen3.swiglu, qwen3.scaled_dot_product_attention = swiglu, attention
    try:
        yield
    finally:
        qwen3.swiglu, qwen3.scaled_dot_product_attention = before
