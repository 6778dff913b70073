"""A forward pass that computes only what the next tokens need, with vectorised exponentials on the CPU.

For decoders built like Llama and Qwen: blocks of `self_attn` (q_proj, k_proj, v_proj, o_proj, rope, sometimes q_norm
and k_norm) and `mlp` (gate_proj, up_proj, down_proj), each after a norm and added to the residual stream. Two savings
over calling the model, neither of them an approximation:

* of the last block only keys and values are needed at every position; its queries, its MLP and the final norm run where
  logits are wanted, which is half of a prefill for a model of two layers;
* softmax and SwiGLU come from fastmath.py.

`fits` looks at the structure; the runner also compares the numbers with the model's own before it relies on this. What
an attention layer is told besides the tokens, the mask and the cache rules a model out: Ministral scales queries by
position from some length on, which a short comparison would not show.
Metal and CUDA keep the model's own call, with MLX's fused kernels.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from inference.forward import fastmath
from inference.forward.kv import SlotKVCache

_BODY = {"embed_tokens", "layers", "norm"}
_BLOCK = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj", "rope"}
_MLP = {"gate_proj", "up_proj", "down_proj"}
_CALL = {"self", "x", "mask", "cache"}


def fits(model: nn.Module) -> bool:
    """True on a CPU, for a model whose modules have the names above and no others."""
    body = getattr(model, "model", None)
    if mx.default_device().type != mx.DeviceType.cpu or not isinstance(body, nn.Module) or _children(body) != _BODY:
        return False
    return all(
        _children(block) == _BLOCK
        and _children(block.self_attn) - {"q_norm", "k_norm"} == _ATTENTION
        and _children(block.mlp) == _MLP
        and _arguments(block) <= _CALL
        and _arguments(block.self_attn) <= _CALL
        and not getattr(block, "use_sliding", False)
        for block in body.layers
    )


def _arguments(module: Any) -> set[str]:
    return set(inspect.signature(type(module).__call__).parameters)


def _children(module: Any) -> set[str]:
    """Names of submodules and of lists of them. MLX's own `children` has every list, such as llama's `layer_types`."""
    parts = module.children() if isinstance(module, nn.Module) else {}
    return {
        name
        for name, part in parts.items()
        if not (isinstance(part, list) and part and not any(isinstance(item, nn.Module) for item in part))
    }


def hidden_states(body: Any, tokens: mx.array, kv: SlotKVCache, last: Sequence[int] | None = None) -> mx.array:
    """Feed tokens (n, L) to the open frame of the KV cache; hidden states after the final norm, (n, L, H).

    With `last` (n,) only those of position last[i] in row i, (n, 1, H).
    """
    x = body.embed_tokens(tokens)
    every = _Positions(kv, tokens.shape[1], None)
    for block, cache in zip(body.layers[:-1], kv.layers[:-1], strict=True):
        x = _block(block, x, cache, every, every)
    wanted = every if last is None or tokens.shape[1] == 1 else _Positions(kv, tokens.shape[1], last)
    return body.norm(_block(body.layers[-1], x, kv.layers[-1], every, wanted))


class _Positions:
    """The positions of the frame's tokens at which something is computed: all, or one per row."""

    def __init__(self, kv: SlotKVCache, fed: int, last: Sequence[int] | None) -> None:
        frame = kv.frame
        assert frame is not None
        self.last: np.ndarray | None = None
        self.offset: Any = kv.layers[0].offset
        self.seen: mx.array | None = None  # (n or 1, 1, 1, queries, span); None: everything
        offsets = np.asarray(frame.offsets if frame.start is None else frame.offsets[:1], dtype=np.int32)
        columns = offsets[:, None] + np.arange(fed, dtype=np.int32)
        if last is not None:
            self.last = np.asarray(last, dtype=np.int32)
            columns = (offsets + self.last)[:, None]
            same = len(set(columns[:, 0].tolist())) == 1
            columns = columns[:1] if same else columns
            self.offset = int(columns[0, 0]) if same else mx.array(columns[:, 0])
        if columns.min() < frame.span - 1:
            self.seen = mx.array((np.arange(frame.span) <= columns[..., None])[:, None, None])

    def of(self, x: mx.array) -> mx.array:
        """x (n, L, H) at these positions."""
        return x if self.last is None else mx.take_along_axis(x, mx.array(self.last)[:, None, None], axis=1)


def _block(block: Any, x: mx.array, cache: Any, every: _Positions, wanted: _Positions) -> mx.array:
    """One block: keys and values of `every` position are stored, the result is that of the `wanted` ones."""
    attention, mlp = block.self_attn, block.mlp
    normed = block.input_layernorm(x)
    keys = _heads(attention.k_proj(normed), attention.n_kv_heads, attention.get("k_norm"))
    values = _heads(attention.v_proj(normed), attention.n_kv_heads, None)
    keys, values = cache.update_and_fetch(attention.rope(keys, offset=every.offset), values)
    queries = _heads(attention.q_proj(wanted.of(normed)), attention.n_heads, attention.get("q_norm"))
    queries = attention.rope(queries, offset=wanted.offset)
    x = wanted.of(x) + attention.o_proj(_attend(queries, keys, values, attention.scale, wanted.seen))
    normed = block.post_attention_layernorm(x)
    return x + mlp.down_proj(fastmath.swiglu(mlp.gate_proj(normed), mlp.up_proj(normed)))


def _heads(x: mx.array, count: int, norm: Any) -> mx.array:
    """(n, L, count * D) -> (n, count, L, D), each head normalised where the model does that."""
    x = x.reshape(x.shape[0], x.shape[1], count, -1)
    return (x if norm is None else norm(x)).transpose(0, 2, 1, 3)


def _attend(queries: mx.array, keys: mx.array, values: mx.array, scale: float, seen: mx.array | None) -> mx.array:
    """Grouped-query attention: (n, heads, L, D) over (n, kv heads, span, D) -> (n, L, heads * D)."""
    rows, heads, size, width = queries.shape
    groups = keys.shape[1]
    # The heads that share keys are rows of one matrix product instead of many small ones.
    q = (queries * scale).reshape(rows, groups, heads // groups * size, width)
    scores = (q @ keys.swapaxes(-1, -2)).reshape(rows, groups, heads // groups, size, -1)
    weights = fastmath.softmax(scores, seen)
    out = (weights.reshape(*q.shape[:3], -1) @ values).reshape(rows, heads, size, -1)
    return out.transpose(0, 2, 1, 3).reshape(rows, size, -1)
