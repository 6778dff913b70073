"""A forward pass that computes only what the sites of a batch need.

For decoders built like Llama and Qwen: blocks of `self_attn` (q_proj, k_proj, v_proj, o_proj, rope, sometimes q_norm
and k_norm) and `mlp` (gate_proj, up_proj, down_proj), each after a norm and added to the residual stream. Three savings
over calling the model, none of them an approximation:

* the tokens that all rows begin with run once, and the rows attend to their keys and values;
* the last block needs the hidden states of the sites only, so its queries, its MLP and the final norm see nothing else;
* softmax and SwiGLU come from fastmath.py.

`Policy` compares the result with the model's own answer before it relies on it.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import numpy as np

from inference.forward import fastmath
from legos_train.batch import Batch


def site_hidden(model: Any, batch: Batch, prefix: int) -> mx.array:
    """Hidden states (K, H) at the sites, after the final norm. The `prefix` columns that all rows share run once."""
    state = embedded(model, batch, prefix)
    for block in model.model.layers[:-1]:
        state = through(block, state, prefix)
    return at_sites(model, state, batch, prefix)


State = tuple[mx.array, ...]
"""What flows from block to block: the rows after the prefix (U, T - prefix, H), then, if there is a prefix, the prefix
as one row (1, prefix, H)."""


def embedded(model: Any, batch: Batch, prefix: int) -> State:
    """The state before the first block."""
    embed, tokens = model.model.embed_tokens, mx.array(batch.tokens)
    return (embed(tokens[:, prefix:]), embed(tokens[:1, :prefix])) if prefix else (embed(tokens),)


def through(block: Any, state: State, prefix: int) -> State:
    """The state after a block that is not the last."""
    x = state[0]
    normed = block.input_layernorm(x)
    keys, values = _keys_and_values(block, normed, prefix)
    out: State = ()
    if prefix:
        head_normed = block.input_layernorm(state[1])
        head_keys, head_values = _keys_and_values(block, head_normed, 0)
        keys, values = _continue(head_keys, keys), _continue(head_values, values)
        queries, seen = _queries(block, head_normed, 0), causal(prefix, prefix)
        out = (_finish(block, state[1], _attend(block.self_attn, queries, head_keys, head_values, seen)),)
    queries, seen = _queries(block, normed, prefix), causal(x.shape[1], keys.shape[2])
    return (_finish(block, x, _attend(block.self_attn, queries, keys, values, seen)), *out)


def at_sites(model: Any, state: State, batch: Batch, prefix: int) -> mx.array:
    """Hidden states (K, H) at the sites after the last block and the final norm, from the state before that block."""
    block, x = model.model.layers[-1], state[0]
    normed = block.input_layernorm(x)
    keys, values = _keys_and_values(block, normed, prefix)
    if prefix:
        head_keys, head_values = _keys_and_values(block, block.input_layernorm(state[1]), 0)
        keys, values = _continue(head_keys, keys), _continue(head_values, values)
    columns, mask, slot = _slots(batch, prefix)
    queries = _queries_at(block, normed, columns, prefix)
    attended = _attend(block.self_attn, queries, keys, values, mx.array(mask)[:, None])
    rows = mx.array(batch.rows)
    hidden = _finish(block, x[rows, mx.array(batch.cols - prefix)], attended[rows, mx.array(slot)])
    return cast(mx.array, model.model.norm(hidden))


def _slots(batch: Batch, prefix: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sites laid out per row: columns after the prefix (U, S), what each may attend to (U, S, T), slot of a site (K,).

    Rows with fewer sites than S repeat column 0, whose result nobody reads.
    """
    counts = np.bincount(batch.rows, minlength=batch.distinct_rows)
    order = np.argsort(batch.rows, kind="stable")
    starts = np.cumsum(counts) - counts
    slot = np.empty(len(order), dtype=np.int32)
    slot[order] = np.arange(len(order)) - np.repeat(starts, counts)
    columns = np.zeros((batch.distinct_rows, int(counts.max(initial=1))), dtype=np.int32)
    columns[batch.rows, slot] = batch.cols - prefix
    seen = np.arange(batch.tokens.shape[1]) <= columns[..., None] + prefix
    return columns, seen, slot


def causal(queries: int, keys: int) -> mx.array:
    """Boolean (queries, keys): the last `queries` of `keys` positions, each seeing itself and what came before."""
    return mx.arange(keys - queries, keys)[:, None] >= mx.arange(keys)[None]


def _keys_and_values(block: Any, normed: mx.array, offset: int) -> tuple[mx.array, mx.array]:
    """Keys and values (U, kv heads, N, D) of normed hidden states (U, N, H) at positions from `offset` on."""
    attention = block.self_attn
    keys = _heads(attention.k_proj(normed), attention.n_kv_heads, attention.get("k_norm"))
    return attention.rope(keys, offset=offset), _heads(attention.v_proj(normed), attention.n_kv_heads, None)


def _queries(block: Any, normed: mx.array, offset: Any) -> mx.array:
    """Queries (U, heads, N, D) at positions from `offset` on, one number or one per row."""
    attention = block.self_attn
    return attention.rope(_heads(attention.q_proj(normed), attention.n_heads, attention.get("q_norm")), offset=offset)


def _queries_at(block: Any, normed: mx.array, columns: np.ndarray, prefix: int) -> mx.array:
    """Queries (U, heads, S, D) at columns (U, S) after the prefix; each is a row of its own for the rotation."""
    rows, slots = columns.shape
    chosen = mx.take_along_axis(normed, mx.array(columns)[:, :, None], axis=1).reshape(rows * slots, 1, -1)
    queries = _queries(block, chosen, mx.array(columns.reshape(-1) + prefix))
    return queries.reshape(rows, slots, *queries.shape[1::2]).transpose(0, 2, 1, 3)


def _heads(x: mx.array, count: int, norm: Any) -> mx.array:
    """(U, N, count * D) -> (U, count, N, D), each head normalised where the model does that."""
    x = x.reshape(x.shape[0], x.shape[1], count, -1)
    return (x if norm is None else norm(x)).transpose(0, 2, 1, 3)


def _continue(prefix: mx.array, rest: mx.array) -> mx.array:
    return mx.concatenate([mx.broadcast_to(prefix, (rest.shape[0], *prefix.shape[1:])), rest], axis=2)


def _attend(attention: Any, queries: mx.array, keys: mx.array, values: mx.array, seen: mx.array) -> mx.array:
    """Grouped-query attention under a boolean mask that broadcasts to (U, 1, N, T) -> (U, N, heads * D)."""
    rows, heads, size, _ = queries.shape
    if mx.default_device().type != mx.DeviceType.cpu:
        out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=attention.scale, mask=seen)
    else:
        groups = keys.shape[1]
        # The heads that share keys are rows of one matrix product instead of many small ones.
        q = (queries * attention.scale).reshape(rows, groups, heads // groups * size, -1)
        scores = (q @ keys.swapaxes(-1, -2)).reshape(rows, groups, heads // groups, size, -1)
        weights = fastmath.softmax(scores, seen if seen.ndim == 2 else seen[:, None])
        out = (weights.reshape(*q.shape[:3], -1) @ values).reshape(rows, heads, size, -1)
    return out.transpose(0, 2, 1, 3).reshape(rows, size, -1)


def _finish(block: Any, x: mx.array, attended: mx.array) -> mx.array:
    """The rest of a block: output projection and MLP, each added to the residual stream."""
    x = x + block.self_attn.o_proj(attended)
    normed, mlp = block.post_attention_layernorm(x), block.mlp
    return x + mlp.down_proj(fastmath.swiglu(mlp.gate_proj(normed), mlp.up_proj(normed)))
