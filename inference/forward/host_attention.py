"""A block with attention, in numpy: over keys and values in slots (host_kv.py).

Heads that share keys are rows of one matrix product, and keys after a block of queries are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mlx import nn

from inference.forward.host_layers import FloatArray, Linear, Mlp, Norm, Positions, rotate, sigmoid

_SCORES = 1 << 22  # attention scores computed at a time


class AttentionBlock:
    """Grouped-query attention, in some models with a gate on its output (Qwen3-Next), and a feed-forward part."""

    def __init__(self, block: Any) -> None:
        attention = block.self_attn
        self.input_norm, self.mlp_norm = Norm(block.input_layernorm), Norm(block.post_attention_layernorm)
        self.q, self.k, self.v, self.o = (Linear(attention[f"{name}_proj"]) for name in "qkvo")
        self.q_norm, self.k_norm = (
            Norm(attention[name]) if isinstance(attention.get(name), nn.Module) else None
            for name in ("q_norm", "k_norm")
        )
        self.mlp = Mlp(block.mlp)
        self.linears = [self.q, self.k, self.v, self.o, *self.mlp.linears]
        self.heads, self.kv_heads = heads_of(attention)
        self.width = self.k.out // self.kv_heads
        self.gated = self.q.out == 2 * self.heads * self.width
        self.scale = np.float32(attention.scale)

    def __call__(
        self, x: FloatArray, cache: tuple[FloatArray, FloatArray], every: Positions, wanted: Positions
    ) -> FloatArray:
        """x (n * L, H): stores keys and values of every position; returns the result at the wanted ones."""
        keys, values = cache
        normed = self.input_norm(x)
        k = self._turned(self.k(normed, every.users).reshape(len(x), self.kv_heads, -1), self.k_norm, every)
        every.store(keys, k)
        every.store(values, self.v(normed, every.users).reshape(len(x), self.kv_heads, -1))
        asked = self.q(wanted.of(normed), wanted.users)
        asked = asked.reshape(len(asked), self.heads, -1)  # (m, heads, D), or (m, heads, 2 * D) with the gates
        q = self._turned(asked[..., : self.width], self.q_norm, wanted)
        q *= self.scale
        high = wanted.low + wanted.rows
        mixed = _attend(q, keys[wanted.low : high], values[wanted.low : high], wanted)
        if self.gated:
            mixed *= sigmoid(asked[..., self.width :]).reshape(mixed.shape)
        x = wanted.of(x) + self.o(mixed, wanted.users)
        return x + self.mlp(self.mlp_norm(x), wanted.users)

    @staticmethod
    def _turned(x: FloatArray, norm: Norm | None, fed: Positions) -> FloatArray:
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
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        mixed = (scores.reshape(rows, kv_heads, group * size, span) @ values[:, :, :span]).reshape(
            rows, kv_heads, group, size, width
        )
        mixed /= total
        out[:, part] = mixed.transpose(0, 3, 1, 2, 4)
    return out.reshape(rows * count, heads * width)
