"""The forward pass in numpy, for float32 models on a CPU.

A small model is bound by the cost of launching operations: microseconds in MLX, less in numpy, which also vectorises
exponentials. For decoders built like Llama and Qwen (see `decoder.fits`), gated delta layers of Qwen3.5 included, with
plain float32 weights, which are used in place. The last block computes only keys, values and states at every position
(as in decoder.py). host_linear.py, host_attention.py and host_delta.py say what else makes it fast.

The runner compares its numbers with the model's own before relying on it. Not used on Metal and CUDA.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from inference.adapters import AdaptedLinear, AdapterVersion
from inference.forward import decoder
from inference.forward.host_attention import AttentionBlock
from inference.forward.host_delta import DeltaBlock
from inference.forward.host_kv import HostKVCache
from inference.forward.host_layers import Norm, Positions, Rotary
from inference.forward.host_linear import FloatArray, Linear, Users
from inference.forward.mlx_forward import Fed

COPIES = 256 << 20
"""Bytes up to which weights are also kept transposed where that makes products faster; those of queries, keys and
values, side by side, whatever their shape."""


def fits(model: nn.Module) -> bool:
    """True on a CPU, for plain float32 decoders with ordinary rotary embeddings."""
    if not decoder.fits(model, deltas=True):
        return False
    body: Any = model.model  # type: ignore[attr-defined]
    plain = all(
        (isinstance(module, nn.Linear | nn.Embedding | nn.RMSNorm | nn.Conv1d) or name.endswith("linear_attn.norm"))
        and module.weight.dtype == mx.float32
        for name, module in model.named_modules()
        if isinstance(module, nn.Module) and "weight" in module and not isinstance(module, AdaptedLinear)
    )
    quantized = any(isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding) for module in model.modules())
    ropes = [block.self_attn.rope for block in body.layers if "self_attn" in block]
    rotary = bool(ropes) and all(type(rope) is nn.RoPE for rope in ropes)
    same = rotary and len({(r.dims, r.base, r.scale, r.traditional) for r in ropes}) == 1
    return plain and not quantized and same and not ropes[0].traditional


class HostForward:
    """A model's forward pass over a `HostKVCache`."""

    name = "numpy"
    batches = pads = True
    ahead = False

    def __init__(self, model: nn.Module, vocab: int) -> None:
        text: Any = model.language_model if isinstance(model.get("language_model"), nn.Module) else model
        body = text.model
        self.vocab = vocab
        self._embedding = np.asarray(body.embed_tokens.weight)
        self.hidden = self._embedding.shape[1]
        untied = getattr(text, "lm_head", None)
        self.head = Linear(untied if isinstance(untied, nn.Module) else body.embed_tokens)
        self._norm = Norm.of(body.norm)
        self._blocks = [AttentionBlock(b) if "self_attn" in b else DeltaBlock(b) for b in body.layers]
        self._keep_transposed()
        rope = next(block.self_attn.rope for block in body.layers if "self_attn" in block)
        self._rotary = Rotary(rope.dims, rope.base, rope.scale)
        attentions = [block for block in self._blocks if isinstance(block, AttentionBlock)]
        self._states = [block.shapes for block in self._blocks if isinstance(block, DeltaBlock)]
        self.heads, self.width, self._count = attentions[0].kv_heads, attentions[0].width, len(attentions)
        self.stateful = bool(self._states)
        self.bytes_per_entry = 2 * 4 * self.heads * self.width * self._count
        self.bytes_per_row = self.new_kv().bytes_per_row

    def _keep_transposed(self) -> None:
        """Copies the weights named at `COPIES`; only those with more outputs than inputs if not all fit."""
        joints = [block.qkv for block in self._blocks if isinstance(block, AttentionBlock)]
        joined = [layer for joint in joints for layer in joint.layers]
        layers = [self.head, *(layer for block in self._blocks for layer in block.linears)]
        alone = [layer for layer in layers if layer.copy_pays and layer not in joined]
        if sum(layer.nbytes for layer in (*alone, *joined)) <= COPIES:
            for joint in joints:
                joint.keep_transposed()
            for layer in alone:
                layer.keep_transposed()
            return
        wide = [layer for layer in layers if layer.wide]
        if sum(layer.nbytes for layer in wide) <= COPIES:
            for layer in wide:
                layer.keep_transposed()

    def new_kv(self) -> HostKVCache:
        """An empty KV cache of the right shape."""
        return HostKVCache(self._count, self.heads, self.width, self._states)

    def __call__(self, kv: HostKVCache, fed: Fed) -> FloatArray:
        """See `Forward`; without head, hidden states."""
        low, offsets, adapters, last = fed.low, fed.offsets, fed.adapters, fed.last
        tokens = np.asarray(fed.tokens)
        rows, width = tokens.shape
        starts = np.asarray(offsets, dtype=np.int64)
        kv.reserve(low + rows, int(starts.max()) + width)
        # What follows a wanted position is padding.
        lengths = np.full(rows, width, np.int64) if last is None else np.asarray(last, np.int64) + 1
        columns = np.broadcast_to(np.arange(width), (rows, width))
        every = Positions(low, starts, width, columns, self._rotary, adapters, lengths)
        wanted = every
        if last is not None and width > 1:
            picked = np.asarray(last, dtype=np.int64)[:, None]
            wanted = Positions(low, starts, width, picked, self._rotary, adapters, lengths)
        kv.states.open(low, offsets)
        attended, states = iter(zip(kv.keys, kv.values, strict=True)), iter(kv.states.layers)
        x = self._embedding[tokens.reshape(-1)]
        with np.errstate(all="ignore"):  # the caller checks whether logits are finite
            for i, block in enumerate(self._blocks):
                cache: Any = next(attended if isinstance(block, AttentionBlock) else states)
                x = block(x, cache, every, every if i < len(self._blocks) - 1 else wanted)
            x = self._norm(x)
            if fed.head:
                x = self.head(x, wanted.users)
        kv.states.close(low, (starts + lengths).tolist())
        return x if last is not None else x.reshape(rows, width, -1)

    def submit(self, *arguments: Any, **options: Any) -> mx.array:
        """Never called: numpy computes synchronously."""
        raise NotImplementedError("numpy computes at once")

    def logits(self, hidden: FloatArray, base: AdapterVersion) -> FloatArray:
        """The base model's head alone: hidden states (n, H) -> (n, V)."""
        return self.head(hidden, Users([base], len(hidden)))
