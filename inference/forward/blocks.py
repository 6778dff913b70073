"""The parts of a decoder block built like Llama's and Qwen's, in MLX: for the engine's forward pass and the trainer's.

Blocks have `self_attn` (q_proj, k_proj, v_proj, o_proj, rope, sometimes q_norm and k_norm) and `mlp` (gate_proj,
up_proj, down_proj), each after a norm and added to the residual stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from inference.forward import fastmath, flash_attention
from inference.forward.attention import Seen, attention, causal

__all__ = ["attend", "attend_in_rows", "attention", "called_plainly", "causal", "finish", "keys_and_values", "queries"]

_CALL = {"self", "x", "inputs", "mask", "cache"}


def called_plainly(module: Any) -> bool:
    """Whether a module takes hidden states, mask and cache, and nothing else.

    Ministral's blocks also take scales of their queries, which differ by position beyond some length: comparing a few
    tokens would miss that.
    """
    return set(inspect.signature(type(module).__call__).parameters) <= _CALL


def keys_and_values(block: Any, normed: mx.array, offset: Any) -> tuple[mx.array, mx.array]:
    """Keys and values (n, kv heads, L, D) of normed hidden states (n, L, H).

    Args:
        block: the decoder block.
        normed: what `block.input_layernorm` returned.
        offset: the position of the first token, one number or one per row.
    """
    layer = block.self_attn
    keys = _heads(layer.k_proj(normed), layer.n_kv_heads, layer.get("k_norm"))
    return layer.rope(keys, offset=offset), _heads(layer.v_proj(normed), layer.n_kv_heads, None)


def queries(block: Any, normed: mx.array, offset: Any) -> mx.array:
    """Queries (n, heads, L, D); arguments as for `keys_and_values`."""
    layer = block.self_attn
    return layer.rope(_heads(layer.q_proj(normed), layer.n_heads, layer.get("q_norm")), offset=offset)


def attend(block: Any, queries: mx.array, keys: mx.array, values: mx.array, seen: Seen | None) -> mx.array:
    """What each query sees, (n, L, heads * D).

    Args:
        block: the decoder block.
        queries: from `queries`.
        keys: from `keys_and_values`.
        values: likewise.
        seen: see `attention`.
    """
    out = attention(queries, keys, values, block.self_attn.scale, seen)
    return out.transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)


def attend_in_rows(
    block: Any,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    rows: Sequence[tuple[slice, Sequence[slice]]],
    seen: Seen,
) -> mx.array:
    """The same for tokens of several rows that lie end to end, each a row of its own here: (m, 1, heads * D).

    Args:
        block: the decoder block.
        queries: (m, heads, 1, D), from `queries`.
        keys: (n, kv heads, 1, D), from `keys_and_values`.
        values: likewise.
        rows: some of the m queries, and the parts of the n keys that they see.
        seen: integers, (m,): each query sees as many of the first of these keys, at least one.
    """
    q, k, v = ((array[:, :, 0]).swapaxes(0, 1) for array in (queries * block.self_attn.scale, keys, values))
    out = flash_attention.of_rows(q, k, v, rows, seen)
    return out.swapaxes(0, 1).reshape(out.shape[1], 1, -1)


def finish(block: Any, x: mx.array, attended: mx.array) -> mx.array:
    """The rest of a block: output projection and MLP, each added to the residual stream."""
    x = x + block.self_attn.o_proj(attended)
    normed, mlp = block.post_attention_layernorm(x), block.mlp
    return x + mlp.down_proj(fastmath.swiglu(mlp.gate_proj(normed), mlp.up_proj(normed)))


def _heads(x: mx.array, count: int, norm: Any) -> mx.array:
    """(n, L, count * D) -> (n, count, L, D), each head normalised if the model does so."""
    x = x.reshape(x.shape[0], x.shape[1], count, -1)
    return (x if norm is None else norm(x)).transpose(0, 2, 1, 3)
