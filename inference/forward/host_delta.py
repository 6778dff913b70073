"""A block with a gated delta rule (Qwen3-Next, Qwen3.5), in numpy, over states in slots (host_states.py).

One token is one update of the state, in place. More tokens are computed in chunks, as in
`inference/recurrence/gated_delta.py`, whose equations these are. Here there is no gradient and the logarithms of the
gates are at hand, so that decays are exponentials of differences of their float64 sums. A row's padding has rate 0 and
gate 1, which leaves its state as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from inference.forward.fastmath import NEGLIGIBLE, sigmoid
from inference.forward.host_layers import Mlp, Norm, Positions
from inference.forward.host_linear import FloatArray, Linear

CHUNK = 64
"""Positions in a chunk."""
_AT_ONCE = 1 << 17  # numbers of states updated at a time, to stay in a level 2 cache
_LOG_NEGLIGIBLE = np.log(NEGLIGIBLE)
_PARTS = {"conv1d", "norm", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}


def fits(layer: Any, children: set[str]) -> bool:
    """Whether a layer with these submodules is built like Qwen3.5's gated delta layer, with plain parameters."""
    conv = layer.get("conv1d")
    return (
        children == _PARTS
        and {"A_log", "dt_bias"} <= set(layer)
        and getattr(layer, "sharding_group", None) is None
        and conv.weight.shape == (layer.conv_dim, layer.conv_kernel_size, 1)
        and "bias" not in conv
    )


class DeltaBlock:
    """Convolution, gated delta rule, gated norm, and a feed-forward part."""

    def __init__(self, block: Any) -> None:
        layer = block.linear_attn
        self.input_norm, self.mlp_norm = Norm.of(block.input_layernorm), Norm.of(block.post_attention_layernorm)
        self._qkv, self._z, self._b, self._a = (Linear(layer[f"in_proj_{name}"]) for name in ("qkv", "z", "b", "a"))
        self._out, self._norm, self.mlp = Linear(layer.out_proj), Norm.of(layer.norm), Mlp(block.mlp)
        self.linears = [self._qkv, self._z, self._b, self._a, self._out, *self.mlp.linears]
        self._taps = np.ascontiguousarray(np.asarray(layer.conv1d.weight)[:, :, 0].T)  # (kernel, C)
        self._rate = -np.exp(np.asarray(layer.A_log, dtype=np.float32))
        self._bias = np.asarray(layer.dt_bias, dtype=np.float32)
        self._groups, self._size = layer.num_k_heads, layer.head_k_dim
        self._heads, self._width = layer.num_v_heads, layer.head_v_dim
        shared = self._heads // self._groups * self._width
        self.shapes = [(len(self._taps) - 1, self._taps.shape[1]), (self._groups, self._size, shared)]
        """Of a row's convolution tail, and of its state: the heads of values that share keys are side by side."""

    def __call__(
        self, x: FloatArray, cache: tuple[FloatArray, FloatArray], every: Positions, wanted: Positions
    ) -> FloatArray:
        """x (n * L, H): moves the states past every position; returns the result at the wanted ones."""
        tails, states = (stored[every.low : every.low + every.rows] for stored in cache)
        normed = self.input_norm(x)
        rows, fed = every.rows, every.fed
        qkv = self._convolved(self._qkv(normed, every.users).reshape(rows, fed, -1), tails, every.lengths)
        key = self._groups * self._size
        q, k = (
            _unit(part.reshape(rows, fed, self._groups, self._size))
            for part in (qkv[..., :key], qkv[..., key : 2 * key])
        )
        q *= np.float32(self._size**-0.5)
        v = qkv[..., 2 * key :].reshape(rows, fed, self._heads, self._width)
        beta = sigmoid(self._b(normed, every.users)).reshape(rows, fed, -1)
        gate = self._rate * np.logaddexp(0.0, self._a(normed, every.users) + self._bias).reshape(rows, fed, -1)
        if fed == 1:
            y = _step(q[:, 0], k[:, 0], v[:, 0], np.exp(gate[:, 0]), beta[:, 0], states)
        else:
            padding = np.arange(fed) >= every.lengths[:, None]
            if padding.any():
                beta[padding] = gate[padding] = 0.0
            y = _chunks(q, k, v, gate, beta, states)
        y = wanted.of(y.reshape(len(x), self._heads, self._width))
        z = self._z(wanted.of(normed), wanted.users)
        y = self._norm(y).reshape(z.shape)
        y *= z
        y *= sigmoid(z)
        x = wanted.of(x) + self._out(y, wanted.users)
        return x + self.mlp(self.mlp_norm(x), wanted.users)

    def _convolved(self, x: FloatArray, tails: FloatArray, lengths: npt.NDArray[np.int64]) -> FloatArray:
        """x (n, L, C) after the causal convolution and SiLU; tails (n, kernel - 1, C) become those after `lengths`."""
        fed, past = x.shape[1], tails.shape[1]
        window = np.concatenate([tails, x], axis=1)
        if (lengths == fed).all():
            tails[:] = window[:, fed:]
        else:
            tails[:] = window[np.arange(len(x))[:, None], lengths[:, None] + np.arange(past)]
        out = window[:, :fed] * self._taps[0]
        for i in range(1, past + 1):
            out += window[:, i : i + fed] * self._taps[i]
        out *= sigmoid(out)
        return out


def _unit(x: FloatArray) -> FloatArray:
    """Vectors of length 1, with the 1e-6 of the reference under the root."""
    square = np.einsum("...i,...i->...", x, x)[..., None]
    square += np.float32(1e-6)
    np.sqrt(square, out=square)
    return x / square


def _step(
    q: FloatArray, k: FloatArray, v: FloatArray, g: FloatArray, beta: FloatArray, states: FloatArray
) -> FloatArray:
    """One position: q, k (n, G, D), v (n, heads, Dv), g and beta (n, heads), states (n, G, D, heads / G * Dv)."""
    rows, groups, _ = k.shape
    width = v.shape[2]
    both = np.stack([k, q], axis=2) @ states  # (n, G, 2, heads / G * Dv): what keys and queries find
    both = both.reshape(rows, groups, 2, -1, width) * g.reshape(rows, groups, 1, -1, 1)
    delta = v.reshape(rows, groups, -1, width) - both[:, :, 0]
    delta *= beta.reshape(rows, groups, -1, 1)
    overlap = np.einsum("ngd,ngd->ng", q, k)[..., None, None]
    y = both[:, :, 1] + overlap * delta
    delta = delta.reshape(rows, groups, 1, -1)
    decay = np.repeat(g, width, axis=1).reshape(rows, groups, 1, -1)
    step = max(1, _AT_ONCE // states[0].size)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        state = states[part]
        state *= decay[part]
        state += k[part, :, :, None] * delta[part]
    return y.reshape(rows, -1, width)


def _chunks(
    q: FloatArray, k: FloatArray, v: FloatArray, gate: FloatArray, beta: FloatArray, states: FloatArray
) -> FloatArray:
    """As `_step`, for q, k (n, L, G, D), v (n, L, heads, Dv), logarithms of the gates and beta (n, L, heads)."""
    rows, fed, groups, size = k.shape
    heads, width = v.shape[2:]
    shared = heads // groups
    chunk = min(CHUNK, max(4, 1 << (fed - 1).bit_length()))
    count = -(-fed // chunk)

    def cut(x: FloatArray, *axes: int) -> FloatArray:  # (n, L, ...) -> (n, G, heads / G or 1, N, C, ...)
        if missing := count * chunk - fed:
            x = np.concatenate([x, np.zeros((rows, missing, *x.shape[2:]), x.dtype)], axis=1)
        x = x.reshape(rows, count, chunk, groups, -1, *axes)
        return np.ascontiguousarray(x.transpose(0, 3, 4, 1, 2, *range(5, x.ndim)))

    q, k, v = cut(q, size), cut(k, size), cut(v, width)
    rate = cut(beta)[..., None]
    total = np.cumsum(cut(gate), axis=-1, dtype=np.float64)
    between = np.where(np.tri(chunk, dtype=bool), total[..., :, None] - total[..., None, :], -np.inf)
    decay, from_start = _factors(between), _factors(total)[..., None]
    to_end = _factors(total[..., -1:] - total)[..., None]
    keys = k.swapaxes(-1, -2)
    readout = (q @ keys) * decay
    solve = _inverse((k @ keys) * (decay * (np.tri(chunk, k=-1, dtype=np.float32) * rate)))
    wanted, found = solve @ (rate * v), solve @ (rate * from_start * k)
    old, writes = q * from_start, np.ascontiguousarray((k * to_end).swapaxes(-1, -2))
    state: Any = states.reshape(rows, groups, size, shared, width).transpose(0, 1, 3, 2, 4)
    y = np.empty_like(v)
    for i in range(count):
        delta = wanted[..., i, :, :] - found[..., i, :, :] @ state
        np.add(old[..., i, :, :] @ state, readout[..., i, :, :] @ delta, out=y[..., i, :, :])
        state = from_start[..., i, -1:, :] * state + writes[..., i, :, :] @ delta
    states.reshape(rows, groups, size, shared, width)[:] = state.transpose(0, 1, 3, 2, 4)
    return y.transpose(0, 3, 4, 1, 2, 5).reshape(rows, count * chunk, heads, width)[:, :fed]


def _factors(logarithms: npt.NDArray[np.float64]) -> FloatArray:
    """Their exponentials; 0 below `NEGLIGIBLE`."""
    return np.exp(np.where(logarithms < _LOG_NEGLIGIBLE, -np.inf, logarithms).astype(np.float32))


def _inverse(lower: FloatArray) -> FloatArray:
    """The inverse of 1 + `lower` (..., C, C), strictly lower triangular: blocks of 4, joined pair by pair."""
    size = lower.shape[-1]
    out = np.zeros_like(lower)
    unit = np.eye(4, dtype=np.float32)
    for i in range(0, size, 4):
        block = lower[..., i : i + 4, i : i + 4]
        out[..., i : i + 4, i : i + 4] = (unit - block) @ (unit + block @ block)
    width = 4
    while width < size:
        for i in range(0, size, 2 * width):
            first, second = slice(i, i + width), slice(i + width, i + 2 * width)
            corner = out[..., second, second] @ lower[..., second, first] @ out[..., first, first]
            out[..., second, first] = np.where(np.abs(corner) < NEGLIGIBLE, np.float32(0.0), -corner)
        width *= 2
    return out
