"""A forward pass that computes only what the sites of a batch need.

For the decoders of `inference.forward.blocks`. Three savings over calling the model, none of them an approximation:

* the tokens that all rows start with run once, and the rows attend to their keys and values;
* the last block only needs the hidden states of the sites, so its queries, MLP and the final norm see nothing else;
* softmax and SwiGLU come from `inference.forward.fastmath`.

`LoRAPolicy` compares the result with the model's own output before relying on it.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import numpy as np

from inference.forward import blocks
from legos_train.loss.batch import Batch


def site_hidden(model: Any, batch: Batch, prefix: int) -> mx.array:
    """Hidden states (K, H) at the sites, after the final norm. The `prefix` columns that all rows share run once."""
    state = embedded(model, batch, prefix)
    for block in model.model.layers[:-1]:
        state = through(block, state, prefix)
    return at_sites(model, state, batch, prefix)


State = tuple[mx.array, ...]
"""The state passed between blocks: the rows after the prefix (U, T - prefix, H), then, if there is a prefix, the prefix
as one row (1, prefix, H)."""


def embedded(model: Any, batch: Batch, prefix: int) -> State:
    """The state before the first block."""
    embed, tokens = model.model.embed_tokens, mx.array(batch.tokens)
    return (embed(tokens[:, prefix:]), embed(tokens[:1, :prefix])) if prefix else (embed(tokens),)


def through(block: Any, state: State, prefix: int) -> State:
    """The state after a block that is not the last."""
    x = state[0]
    normed = block.input_layernorm(x)
    keys, values = blocks.keys_and_values(block, normed, prefix)
    out: State = ()
    if prefix:
        head_normed = block.input_layernorm(state[1])
        head_keys, head_values = blocks.keys_and_values(block, head_normed, 0)
        keys, values = continued(head_keys, keys), continued(head_values, values)
        queries = blocks.queries(block, head_normed, 0)
        attended = blocks.attend(block, queries, head_keys, head_values, blocks.causal(prefix, prefix))
        out = (blocks.finish(block, state[1], attended),)
    queries, seen = blocks.queries(block, normed, prefix), blocks.causal(x.shape[1], keys.shape[2])
    attended = blocks.attend(block, queries, keys, values, seen)
    return (blocks.finish(block, x, attended), *out)


def at_sites(model: Any, state: State, batch: Batch, prefix: int) -> mx.array:
    """Hidden states (K, H) at the sites after the last block and the final norm, from the state before that block."""
    block, x = model.model.layers[-1], state[0]
    normed = block.input_layernorm(x)
    keys, values = blocks.keys_and_values(block, normed, prefix)
    if prefix:
        head_keys, head_values = blocks.keys_and_values(block, block.input_layernorm(state[1]), 0)
        keys, values = continued(head_keys, keys), continued(head_values, values)
    columns, slot = _slots(batch, prefix)
    queries = _queries_at(block, normed, columns, prefix)
    attended = blocks.attend(block, queries, keys, values, columns + prefix + 1)
    rows = mx.array(batch.rows)
    hidden = blocks.finish(block, x[rows, mx.array(batch.cols - prefix)], attended[rows, mx.array(slot)])
    return cast(mx.array, model.model.norm(hidden))


def _slots(batch: Batch, prefix: int) -> tuple[np.ndarray, np.ndarray]:
    """Sites laid out per row: columns after the prefix (U, S) and the slot of each site (K,).

    Rows with fewer sites than S repeat column 0, whose result is unused.
    """
    counts = np.bincount(batch.rows, minlength=batch.distinct_rows)
    order = np.argsort(batch.rows, kind="stable")
    starts = np.cumsum(counts) - counts
    slot = np.empty(len(order), dtype=np.int32)
    slot[order] = np.arange(len(order)) - np.repeat(starts, counts)
    columns = np.zeros((batch.distinct_rows, int(counts.max(initial=1))), dtype=np.int32)
    columns[batch.rows, slot] = batch.cols - prefix
    return columns, slot


def _queries_at(block: Any, normed: mx.array, columns: np.ndarray, prefix: int) -> mx.array:
    """Queries (U, heads, S, D) at columns (U, S) after the prefix; each is its own row for the rotation."""
    rows, slots = columns.shape
    chosen = mx.take_along_axis(normed, mx.array(columns)[:, :, None], axis=1).reshape(rows * slots, 1, -1)
    queries = blocks.queries(block, chosen, mx.array(columns.reshape(-1) + prefix))
    return queries.reshape(rows, slots, *queries.shape[1::2]).transpose(0, 2, 1, 3)


def continued(prefix: mx.array, rest: mx.array) -> mx.array:
    """Keys or values (U, heads, P + T, D) of rows (U, heads, T, D) that continue one prefix (1, heads, P, D)."""
    return mx.concatenate([mx.broadcast_to(prefix, (rest.shape[0], *prefix.shape[1:])), rest], axis=2)
