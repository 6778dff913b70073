"""A forward pass limited to what the next tokens need, with vectorised exponentials on the CPU.

For the decoders of blocks.py. Two savings over calling the model, neither of them an approximation:

* the last block needs only keys and values at every position; its queries, its MLP and the final norm run only where
  logits are wanted, which saves half of a prefill for a two-layer model;
* softmax and SwiGLU from fastmath.py.

`fits` looks at the structure; the numbers are also compared with the model's own before this is used. A model whose
blocks take anything but tokens, mask and cache does not fit (`blocks.called_plainly`). Metal and CUDA keep the
model's own call, with MLX's fused kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from inference.forward import blocks, host_delta
from inference.forward.kv import SlotKVCache

_BODY = {"embed_tokens", "layers", "norm"}
_BLOCK = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_DELTA_BLOCK = _BLOCK - {"self_attn"} | {"linear_attn"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj", "rope"}
_MLP = {"gate_proj", "up_proj", "down_proj"}


def fits(model: nn.Module, *, deltas: bool = False) -> bool:
    """True on a CPU, for a model whose modules have the names above and no others.

    With `deltas`, some blocks may have Qwen3.5's gated delta layers instead of attention, which only host_forward.py
    computes.
    """
    body = getattr(model, "model", None)
    if mx.default_device().type != mx.DeviceType.cpu or not isinstance(body, nn.Module) or _children(body) != _BODY:
        return False
    return all(
        (_attends(block) or (deltas and _recurs(block)))
        and _children(block.mlp) == _MLP
        and blocks.called_plainly(block)
        and not getattr(block, "use_sliding", False)
        for block in body.layers
    )


def _attends(block: Any) -> bool:
    if _children(block) != _BLOCK:
        return False
    attention = block.self_attn
    return _children(attention) - {"q_norm", "k_norm"} == _ATTENTION and blocks.called_plainly(attention)


def _recurs(block: Any) -> bool:
    if _children(block) != _DELTA_BLOCK:
        return False
    return host_delta.fits(block.linear_attn, _children(block.linear_attn)) and blocks.called_plainly(block.linear_attn)


def _children(module: Any) -> set[str]:
    """Names of submodules and of lists of them. MLX's own `children` includes every list, such as llama's
    `layer_types`.
    """
    parts = module.children() if isinstance(module, nn.Module) else {}
    return {
        name
        for name, part in parts.items()
        if not (isinstance(part, list) and part and not any(isinstance(item, nn.Module) for item in part))
    }


def hidden_states(body: Any, tokens: mx.array, kv: SlotKVCache, last: Sequence[int] | None = None) -> mx.array:
    """Feeds tokens (n, L) to the open frame of the KV cache; hidden states after the final norm, (n, L, H).

    With `last` (n,), only those at position last[i] of row i, (n, 1, H).
    """
    x = body.embed_tokens(tokens)
    every = _Positions(kv, tokens.shape[1], None)
    for block, cache in zip(body.layers[:-1], kv.layers[:-1], strict=True):
        x = _block(block, x, cache, every, every)
    wanted = every if last is None or tokens.shape[1] == 1 else _Positions(kv, tokens.shape[1], last)
    return body.norm(_block(body.layers[-1], x, kv.layers[-1], every, wanted))


class _Positions:
    """The positions of the frame's tokens to compute: all, or one per row."""

    def __init__(self, kv: SlotKVCache, fed: int, last: Sequence[int] | None) -> None:
        frame = kv.frame
        assert frame is not None
        self.last: np.ndarray | None = None
        self.offset: Any = kv.layers[0].offset
        self.seen: np.ndarray | None = None  # (n or 1, queries), see `attention`
        offsets = np.asarray(frame.offsets if frame.start is None else frame.offsets[:1], dtype=np.int32)
        columns = offsets[:, None] + np.arange(fed, dtype=np.int32)
        if last is not None:
            self.last = np.asarray(last, dtype=np.int32)
            columns = (offsets + self.last)[:, None]
            same = len(set(columns[:, 0].tolist())) == 1
            columns = columns[:1] if same else columns
            self.offset = int(columns[0, 0]) if same else mx.array(columns[:, 0])
        if columns.min() < frame.span - 1:
            self.seen = columns + 1

    def of(self, x: mx.array) -> mx.array:
        """x (n, L, H) at these positions."""
        return x if self.last is None else mx.take_along_axis(x, mx.array(self.last)[:, None, None], axis=1)


def _block(block: Any, x: mx.array, cache: Any, every: _Positions, wanted: _Positions) -> mx.array:
    """One block: stores keys and values of `every` position, returns the result at the `wanted` ones."""
    normed = block.input_layernorm(x)
    keys, values = cache.update_and_fetch(*blocks.keys_and_values(block, normed, every.offset))
    queries = blocks.queries(block, wanted.of(normed), wanted.offset)
    return blocks.finish(block, wanted.of(x), blocks.attend(block, queries, keys, values, wanted.seen))
