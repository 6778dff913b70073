"""A block with attention, in numpy: over keys and values in slots (host_kv.py).

Heads that share keys are rows of one matrix product, and keys after a block of queries are skipped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from mlx import nn

from inference.forward.fastmath import sigmoid
from inference.forward.host_layers import Mlp, Norm, Positions, rotate
from inference.forward.host_linear import FloatArray, FusedLinear, Linear
from inference.forward.row_parts import PART, in_parts

_SCORES = 1 << 22  # attention scores computed at a time
_QKV = tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]
"""(m, heads, D), (n * L, kv heads, D) twice, and the gates (m, heads, D), if any."""


class AttentionBlock:
    """Grouped-query attention, in some models with a gate on its output (Qwen3-Next), and a feed-forward part."""

    def __init__(self, block: Any) -> None:
        attention = block.self_attn
        self.input_norm, self.mlp_norm = Norm.of(block.input_layernorm), Norm.of(block.post_attention_layernorm)
        self.q, self.k, self.v, self.o = (Linear(attention[f"{name}_proj"]) for name in "qkvo")
        self.qkv, self.mlp = FusedLinear(self.q, self.k, self.v), Mlp(block.mlp)
        self.linears = [*self.qkv.layers, self.o, *self.mlp.linears]
        self.heads, self.kv_heads = heads_of(attention)
        self.width = self.k.out // self.kv_heads
        self.gated = self.q.out == 2 * self.heads * self.width
        self.scale = np.float32(attention.scale)
        norms = [attention.get(name) for name in ("q_norm", "k_norm")]
        self.q_norm, self.k_norm = (Norm.of(norm) if isinstance(norm, nn.Module) else None for norm in norms)
        self.alike = not self.gated and (self.q_norm and self.q_norm.eps) == (self.k_norm and self.k_norm.eps)
        """Whether queries and keys are treated alike, but for the weights of their norms."""
        self._qk_norm: Norm | None = None
        if self.alike and self.q_norm is not None and self.k_norm is not None:
            by_head = (self.q_norm.weight,) * self.heads + (self.k_norm.weight,) * self.kv_heads
            self._qk_norm = Norm(np.stack(by_head), self.q_norm.eps)

    def __call__(
        self, x: FloatArray, cache: tuple[FloatArray, FloatArray], every: Positions, wanted: Positions
    ) -> FloatArray:
        """x (n * L, H): stores keys and values of every position; returns the result at the wanted ones."""
        keys, values = cache
        normed = self.input_norm(x)
        together = wanted is every and self.alike
        q, k, v, gates = self._together(normed, every) if together else self._apart(normed, every, wanted)
        every.store(keys, k)
        every.store(values, v)
        q *= self.scale
        high = wanted.low + wanted.rows
        mixed = _attend(q, keys[wanted.low : high], values[wanted.low : high], wanted)
        if gates is not None:
            mixed *= sigmoid(gates).reshape(mixed.shape)
        x = wanted.of(x) + self.o(mixed, wanted.users)
        return x + self.mlp(self.mlp_norm(x), wanted.users)

    def _together(self, normed: FloatArray, every: Positions) -> _QKV:
        """Queries and keys are normalised and turned as one array."""
        qkv = self.qkv(normed, every.users).reshape(len(normed), -1, self.width)
        both = self.heads + self.kv_heads
        qk = _rotated(qkv[:, :both], self._qk_norm, every)
        return qk[:, : self.heads], qk[:, self.heads :], qkv[:, both:], None

    def _apart(self, normed: FloatArray, every: Positions, wanted: Positions) -> _QKV:
        k, v = (layer(normed, every.users).reshape(len(normed), self.kv_heads, -1) for layer in (self.k, self.v))
        q = self.q(wanted.of(normed), wanted.users)
        q = q.reshape(len(q), self.heads, -1)  # (m, heads, D), or (m, heads, 2 * D) with the gates
        gates = q[..., self.width :] if self.gated else None
        q = _rotated(q[..., : self.width], self.q_norm, wanted)
        return q, _rotated(k, self.k_norm, every), v, gates


def _rotated(x: FloatArray, norm: Norm | None, fed: Positions) -> FloatArray:
    """(m, heads, D), normalised if the model does so, with rotary embedding."""
    return rotate(x if norm is None else norm(x), fed.cos, fed.sin)


def heads_of(attention: Any) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    if hasattr(attention, "n_heads"):
        return attention.n_heads, attention.n_kv_heads
    return attention.num_attention_heads, attention.num_key_value_heads


def _attend(q: FloatArray, keys: FloatArray, values: FloatArray, fed: Positions) -> FloatArray:
    """Grouped-query attention of (n * Q, heads, D) over (n, kv heads, length, D) -> (n * Q, heads * D)."""
    rows, count, kv_heads = fed.rows, fed.queries, keys.shape[1]
    _, heads, width = q.shape
    group = heads // kv_heads
    if count == 1:
        return _attend_once(q.reshape(rows, kv_heads, group, width), keys, values, fed).reshape(rows, heads * width)
    q = q.reshape(rows, count, kv_heads, group, width)
    out = np.empty_like(q)
    step = max(1, min(count, _SCORES // (rows * heads * fed.span)))
    for first in range(0, count, step):
        part = slice(first, first + step)
        positions = fed.positions[:, part]
        span = int(positions.max()) + 1
        size = positions.shape[1]
        # (n, kv heads, group * queries, D): heads that share keys are rows of one product
        block = q[:, part].transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * size, width)
        scores = (block @ keys[:, :, :span].swapaxes(-1, -2)).reshape(rows, kv_heads, group, size, span)
        if int(positions.min()) + 1 < span:
            hidden = np.arange(span) > positions[..., None]
            np.copyto(scores, np.float32(-np.inf), where=hidden[:, None, None])
        total = np.empty((*scores.shape[:-1], 1), np.float32)
        work = partial(_exponentials, scores.reshape(-1, span), total.reshape(-1, 1))
        if scores.size <= PART:
            work(slice(None))
        else:
            in_parts(work, total.size, span)
        mixed = (scores.reshape(rows, kv_heads, group * size, span) @ values[:, :, :span]).reshape(
            rows, kv_heads, group, size, width
        )
        mixed /= total
        out[:, part] = mixed.transpose(0, 3, 1, 2, 4)
    return out.reshape(rows * count, heads * width)


def _exponentials(scores: FloatArray, total: FloatArray, rows: slice) -> None:
    """Replaces scores by the exponentials of their distance from the largest of their row, and adds those up."""
    part = scores[rows]
    part -= part.max(axis=-1, keepdims=True)
    np.exp(part, out=part)
    np.sum(part, axis=-1, keepdims=True, out=total[rows])


def _attend_once(q: FloatArray, keys: FloatArray, values: FloatArray, fed: Positions) -> FloatArray:
    """One query of each row and head, (n, kv heads, group, D), over all entries up to its position."""
    span = int(fed.positions.max()) + 1
    scores: FloatArray = q @ keys[:, :, :span].swapaxes(-1, -2)
    if int(fed.positions.min()) + 1 < span:
        np.copyto(scores, np.float32(-np.inf), where=(np.arange(span) > fed.positions)[:, None, None])
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total = np.add.reduce(scores, axis=-1, keepdims=True)
    mixed: FloatArray = scores @ values[:, :, :span]
    mixed /= total
    return mixed
