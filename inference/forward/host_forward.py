"""The forward pass in numpy, for float32 models on a CPU.

A small model is bound by the cost of launching operations: microseconds in MLX, less in numpy, which also vectorises
exponentials. For decoders built like Llama and Qwen (see `decoder.fits`) with plain float32 weights, which are used in
place. Also:

* one row is a matrix-vector product; a few rows are multiplied with slices of the weights that are small enough for
  OpenBLAS to skip repacking them (`few_rows`), which otherwise costs more than the product; for slightly more rows it
  repacks less if the weights are the left factor;
* for a few rows, different adapters take two products in total: their ranks side by side, with the others' set to zero;
* the last block computes only keys and values at every position (as in decoder.py);
* attention skips keys after a block of queries.

The runner compares its numbers with the model's own before relying on it. Not used on Metal and CUDA.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from inference.adapters import AdaptedLinear, AdapterVersion, Ranks
from inference.forward import decoder
from inference.forward.few_rows import FEW_ROWS, product
from inference.forward.host_kv import HostKVCache

FloatArray = npt.NDArray[np.float32]

_LONG = 16  # from this many tokens in a row, its adapter is applied to it alone
_STRETCH = 256
_JOINED = 1024  # rows times ranks up to which several adapters are multiplied as one
_SCORES = 1 << 22  # attention scores computed at a time


def fits(model: nn.Module) -> bool:
    """True on a CPU, for plain float32 decoders with ordinary rotary embeddings."""
    if not decoder.fits(model):
        return False
    body: Any = model.model
    first = body.layers[0].self_attn
    plain = all(
        isinstance(module, nn.Linear | nn.Embedding | nn.RMSNorm) and module.weight.dtype == mx.float32
        for name, module in model.named_modules()
        if isinstance(module, nn.Module) and "weight" in module and not isinstance(module, AdaptedLinear)
    )
    quantized = any(isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding) for module in model.modules())
    rotary = all(type(block.self_attn.rope) is nn.RoPE for block in body.layers)
    same = (
        rotary and len({(r.dims, r.base, r.scale, r.traditional) for r in (b.self_attn.rope for b in body.layers)}) == 1
    )
    return plain and not quantized and same and not first.rope.traditional


class HostForward:
    """A model's forward pass over a `HostKVCache`."""

    name = "numpy"
    batches = pads = True
    ahead = False
    bytes_per_row = 0

    def __init__(self, model: nn.Module, vocab: int) -> None:
        body: Any = model.model
        self.vocab = vocab
        self._embedding = np.asarray(body.embed_tokens.weight)
        self.hidden = self._embedding.shape[1]
        untied = getattr(model, "lm_head", None)
        self.head = _Linear(untied if isinstance(untied, nn.Module) else body.embed_tokens)
        self._norm = _Norm(body.norm)
        self._blocks = [_Block(block) for block in body.layers]
        rope = body.layers[0].self_attn.rope
        self._rotary = _Rotary(rope.dims, rope.base, rope.scale)
        attention = body.layers[0].self_attn
        self.heads = attention.n_kv_heads
        self.width = attention.k_proj.linear.weight.shape[0] // self.heads
        self.bytes_per_entry = 2 * 4 * self.heads * self.width * len(self._blocks)

    def new_kv(self) -> HostKVCache:
        """An empty KV cache of the right shape."""
        return HostKVCache(len(self._blocks), self.heads, self.width)

    def __call__(
        self,
        kv: HostKVCache,
        low: int,
        offsets: Sequence[int],
        tokens: npt.NDArray[np.int32],
        adapters: Sequence[AdapterVersion],
        last: Sequence[int] | None = None,
        *,
        head: bool = True,
    ) -> FloatArray:
        """Feed tokens (n, L) to slots low..low+n-1, of which the first `offsets` (n,) entries are valid.

        Returns logits (n, V) at positions `last` (n,), or (n, L, V) when it is None; without head, hidden states.
        """
        rows, fed = tokens.shape
        starts = np.asarray(offsets, dtype=np.int64)
        kv.reserve(low + rows, int(starts.max()) + fed)
        every = _Positions(kv, low, starts, fed, np.broadcast_to(np.arange(fed), (rows, fed)), self._rotary, adapters)
        wanted = every
        if last is not None and fed > 1:
            picked = np.asarray(last, dtype=np.int64)[:, None]
            wanted = _Positions(kv, low, starts, fed, picked, self._rotary, adapters)
        x = self._embedding[tokens.reshape(-1)]
        with np.errstate(all="ignore"):  # the caller checks whether logits are finite
            for i, block in enumerate(self._blocks):
                x = block(x, kv.keys[i], kv.values[i], every, every if i < len(self._blocks) - 1 else wanted)
            x = self._norm(x)
            if head:
                x = self.head(x, wanted.users)
        return x if last is not None else x.reshape(rows, fed, -1)

    def submit(self, *arguments: Any, **options: Any) -> mx.array:
        """Never called: numpy computes synchronously."""
        raise NotImplementedError("numpy computes at once")

    def logits(self, hidden: FloatArray, base: AdapterVersion) -> FloatArray:
        """The base model's head alone: hidden states (n, H) -> (n, V)."""
        return self.head(hidden, _Users([base], len(hidden)))


class _Users:
    """Which flat rows (n * Q) use which adapter slot.

    Attributes:
        groups: slots and the rows that use them, split to fit a level 2 cache in prompts; slot 0, the base model, is
            omitted.
        slots: the slot of each row (n * Q, 1).
        slot_of: a slot per occurring digest; equal adapters count as one.
    """

    def __init__(self, adapters: Sequence[AdapterVersion], queries: int) -> None:
        self.slot_of: dict[str, int] = {}
        slots = [self.slot_of.setdefault(adapter.digest, adapter.slot) for adapter in adapters]
        self.groups: list[tuple[int, Any]] = []
        self._others: dict[Ranks, npt.NDArray[np.bool_]] = {}
        if not any(slots):
            return
        flat = np.repeat(np.array(slots), queries)
        self.slots = flat[:, None]
        if len(self.slot_of) > 1 and queries < _LONG:
            self.groups = [(slot, np.flatnonzero(flat == slot)) for slot in self.slot_of.values() if slot]
            return
        row = 0
        for slot, run in itertools.groupby(slots):
            end = row + queries * len(list(run))
            if slot:
                self.groups += [(slot, slice(i, min(i + _STRETCH, end))) for i in range(row, end, _STRETCH)]
            row = end

    def others(self, ranks: Ranks) -> npt.NDArray[np.bool_]:
        """Mask (n * Q, R) of ranks that do not belong to a row's own slot."""
        mask = self._others.get(ranks)
        if mask is None:
            owners = np.repeat([self.slot_of.get(digest, -1) for digest, _ in ranks], [rank for _, rank in ranks])
            mask = self._others[ranks] = owners != self.slots
        return mask


class _Positions:
    """The positions of the fed tokens to compute: `columns` (n, Q) within the L tokens of each row."""

    def __init__(
        self,
        kv: HostKVCache,
        low: int,
        starts: npt.NDArray[np.int64],
        fed: int,
        columns: npt.NDArray[np.int64],
        rotary: _Rotary,
        adapters: Sequence[AdapterVersion],
    ) -> None:
        self.low, self.starts, self.fed = low, starts, fed
        self.rows, self.queries = columns.shape
        self.positions = starts[:, None] + columns
        self.even = bool((starts == starts[0]).all())
        self.span = int(starts.max()) + fed
        self.flat = (np.arange(self.rows)[:, None] * fed + columns).reshape(-1) if self.queries != fed else None
        self.cos, self.sin = rotary(self.positions.reshape(-1))
        self.users = _Users(adapters, self.queries)

    def of(self, x: FloatArray) -> FloatArray:
        """x (n * L, H) at these positions, (n * Q, H)."""
        return x if self.flat is None else x[self.flat]

    def store(self, kv: FloatArray, new: FloatArray) -> None:
        """Append (n * L, heads, D) after the valid entries of each slot."""
        new = new.reshape(self.rows, self.fed, *new.shape[1:])
        if self.even:
            start = int(self.starts[0])
            kv[self.low : self.low + self.rows, :, start : start + self.fed] = new.swapaxes(1, 2)
        else:
            slots = np.arange(self.low, self.low + self.rows)[:, None]
            kv[slots, :, self.starts[:, None] + np.arange(self.fed)] = new


class _Block:
    def __init__(self, block: Any) -> None:
        attention, mlp = block.self_attn, block.mlp
        self.input_norm, self.mlp_norm = _Norm(block.input_layernorm), _Norm(block.post_attention_layernorm)
        self.q, self.k, self.v, self.o = (_Linear(attention[f"{name}_proj"]) for name in "qkvo")
        self.q_norm, self.k_norm = (
            _Norm(attention[name]) if isinstance(attention.get(name), nn.Module) else None
            for name in ("q_norm", "k_norm")
        )
        self.gate, self.up, self.down = (_Linear(mlp[f"{name}_proj"]) for name in ("gate", "up", "down"))
        self.heads, self.kv_heads = attention.n_heads, attention.n_kv_heads
        self.scale = np.float32(attention.scale)

    def __call__(
        self, x: FloatArray, keys: FloatArray, values: FloatArray, every: _Positions, wanted: _Positions
    ) -> FloatArray:
        """x (n * L, H): stores keys and values of every position; returns the result at the wanted ones."""
        normed = self.input_norm(x)
        k = self._turned(self.k(normed, every.users), self.kv_heads, self.k_norm, every)
        every.store(keys, k)
        every.store(values, self.v(normed, every.users).reshape(len(x), self.kv_heads, -1))
        q = self._turned(self.q(wanted.of(normed), wanted.users), self.heads, self.q_norm, wanted)
        q *= self.scale
        high = wanted.low + wanted.rows
        mixed = _attend(q, keys[wanted.low : high], values[wanted.low : high], wanted)
        x = wanted.of(x) + self.o(mixed, wanted.users)
        normed = self.mlp_norm(x)
        return x + self.down(_swiglu(self.gate(normed, wanted.users), self.up(normed, wanted.users)), wanted.users)

    @staticmethod
    def _turned(x: FloatArray, heads: int, norm: _Norm | None, fed: _Positions) -> FloatArray:
        """(m, heads * D) -> (m, heads, D), normalised if the model does so, with rotary embedding."""
        x = x.reshape(len(x), heads, -1)
        return _rotate(x if norm is None else norm(x), fed.cos, fed.sin)


def _attend(q: FloatArray, keys: FloatArray, values: FloatArray, fed: _Positions) -> FloatArray:
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


def _swiglu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """`gate * sigmoid(gate) * up`; overwrites `up`."""
    sigmoid = np.negative(gate)
    np.minimum(sigmoid, 88.0, out=sigmoid)  # exp overflows float32 beyond; sigmoid is below 1e-38 there
    np.exp(sigmoid, out=sigmoid)
    sigmoid += 1.0
    up *= gate
    up /= sigmoid
    return up


def _rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding (Su et al. 2021), halves layout: x (m, heads, D), cos and sin (m, 1, R / 2), R <= D."""
    half = cos.shape[-1]
    a, b = x[..., :half], x[..., half : 2 * half]
    out = np.empty_like(x)
    np.multiply(a, cos, out=out[..., :half])
    out[..., :half] -= b * sin
    np.multiply(b, cos, out=out[..., half : 2 * half])
    out[..., half : 2 * half] += a * sin
    out[..., 2 * half :] = x[..., 2 * half :]
    return out


class _Rotary:
    """Cosines and sines by position, cached."""

    def __init__(self, dims: int, base: float, scale: float) -> None:
        self._frequencies = scale * float(base) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
        self._cos = self._sin = np.zeros((0, dims // 2), np.float32)

    def __call__(self, positions: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """(m,) -> two arrays (m, 1, dims / 2)."""
        top = int(positions.max())
        if top >= len(self._cos):
            angles = np.arange(max(256, 2 * top))[:, None] * self._frequencies
            self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return self._cos[positions][:, None], self._sin[positions][:, None]


class _Norm:
    """RMSNorm over the last axis."""

    def __init__(self, norm: Any) -> None:
        self._weight = np.asarray(norm.weight)
        self._eps = np.float32(norm.eps)

    def __call__(self, x: FloatArray) -> FloatArray:
        square = np.einsum("...i,...i->...", x, x)[..., None]
        square /= np.float32(x.shape[-1])
        square += self._eps
        np.sqrt(square, out=square)
        out = x / square
        out *= self._weight
        return out


class _Linear:
    """x @ W.T + bias, plus the low-rank term of each group's adapter."""

    def __init__(self, module: Any) -> None:
        self._slots = module.slots if isinstance(module, AdaptedLinear) else None
        linear = module.linear if isinstance(module, AdaptedLinear) else module
        self._weight = np.asarray(linear.weight)
        self._bias = np.asarray(linear.bias) if "bias" in linear else None
        self._turned = self._weight.T

    def __call__(self, x: FloatArray, users: _Users) -> FloatArray:
        """(m, in) -> (m, out)."""
        y = product(x, self._weight, self._turned)
        if self._bias is not None:
            y += self._bias
        if self._slots is not None and self._slots.weights and users.groups:
            self._adapt(x, y, users)
        return y

    def _adapt(self, x: FloatArray, y: FloatArray, users: _Users) -> None:
        """Add each row's low-rank term to y."""
        assert self._slots is not None
        if len(users.slot_of) > 1 and len(x) <= FEW_ROWS * 4:
            joint = self._slots.joined(users.slot_of)
            if joint is None:
                return
            a, b, ranks = joint
            if len(x) * len(b) <= _JOINED:
                low = x @ a
                # Not a factor of 0: another adapter's result may be infinite.
                np.copyto(low, np.float32(0.0), where=users.others(ranks))
                y += low @ b
                return
        for slot, chosen in users.groups:
            pair = self._slots.host(slot)
            if pair is not None:
                y[chosen] += (x[chosen] @ pair[0]) @ pair[1]
