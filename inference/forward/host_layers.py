"""Parts of a forward pass in numpy: positions, rotary embeddings, norms, the feed-forward part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.adapters import AdapterVersion
from inference.forward.host_linear import FloatArray, Linear, Users
from inference.forward.row_parts import PART, in_parts

_dot = getattr(np, "vecdot", partial(np.einsum, "...i,...i->..."))  # numpy 1 has only the slower one


class Positions:
    """The positions of the fed tokens to compute: `columns` (n, Q) within the L tokens of each row."""

    def __init__(
        self,
        low: int,
        starts: npt.NDArray[np.int64],
        fed: int,
        columns: npt.NDArray[np.int64],
        rotary: Rotary,
        adapters: Sequence[AdapterVersion],
        lengths: npt.NDArray[np.int64],
    ) -> None:
        self.lengths = lengths  # (n,): how many of a row's L tokens are no padding
        self.low, self.starts, self.fed = low, starts, fed
        self.rows, self.queries = columns.shape
        self.positions = starts[:, None] + columns
        self.even = bool((starts == starts[0]).all())
        self.span = int(starts.max()) + fed
        self.flat = (np.arange(self.rows)[:, None] * fed + columns).reshape(-1) if self.queries != fed else None
        self.cos, self.sin = rotary(self.positions.reshape(-1))
        self.users = Users(adapters, self.queries)

    def of(self, x: FloatArray) -> FloatArray:
        """x (n * L, H) at these positions, (n * Q, H)."""
        return x if self.flat is None else x[self.flat]

    def store(self, kv: FloatArray, new: FloatArray) -> None:
        """Appends (n * L, heads, D) after the valid entries of each slot."""
        new = new.reshape(self.rows, self.fed, *new.shape[1:])
        if self.even:
            start = int(self.starts[0])
            kv[self.low : self.low + self.rows, :, start : start + self.fed] = new.swapaxes(1, 2)
        else:
            slots = np.arange(self.low, self.low + self.rows)[:, None]
            kv[slots, :, self.starts[:, None] + np.arange(self.fed)] = new


class Rotary:
    """Cosines and sines by position, cached."""

    def __init__(self, dims: int, base: float, scale: float) -> None:
        self._frequencies = scale * float(base) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
        self._cos = self._sin = np.zeros((0, 2, dims // 2), np.float32)

    def __call__(self, positions: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """(m,) -> two arrays (m, 1, 2, dims / 2): cos and cos, -sin and sin."""
        top = int(positions.max())
        if top >= len(self._cos):
            angles = np.arange(max(256, 2 * top))[:, None] * self._frequencies
            cos, sin = np.cos(angles), np.sin(angles)
            self._cos = np.stack([cos, cos], axis=1).astype(np.float32)
            self._sin = np.stack([-sin, sin], axis=1).astype(np.float32)
        return self._cos[positions][:, None], self._sin[positions][:, None]


class Norm:
    """RMSNorm over the last axis.

    Args:
        weight: of the last axis; or one for each vector along the last but one, (heads, D).
        eps: added to the mean square.
    """

    def __init__(self, weight: Any, eps: float) -> None:
        self.weight, self.eps = np.asarray(weight), eps
        width = self.weight.shape[-1]
        self._weight = self.weight * np.float32(math.sqrt(width))
        self._eps = np.float32(eps * width)

    @classmethod
    def of(cls, norm: Any) -> Norm:
        """The norm of an MLX module."""
        return cls(norm.weight, norm.eps)

    def __call__(self, x: FloatArray) -> FloatArray:
        if x.size <= PART:
            return self._normed(x, None)
        out = np.empty(x.shape, np.float32)
        in_parts(lambda part: self._normed(x[part], out[part]), len(x), x[0].size)
        return out

    def _normed(self, x: FloatArray, out: FloatArray | None) -> FloatArray:
        length = _dot(x, x)[..., None]
        length += self._eps
        np.sqrt(length, out=length)
        out = np.multiply(x, self._weight, out=out)
        out /= length
        return out


class Mlp:
    """The gated feed-forward part of a block."""

    def __init__(self, mlp: Any) -> None:
        self._gate, self._up, self._down = (Linear(mlp[f"{name}_proj"]) for name in ("gate", "up", "down"))
        self.linears = [self._gate, self._up, self._down]

    def __call__(self, x: FloatArray, users: Users) -> FloatArray:
        """(m, H) -> (m, H)."""
        return self._down(swiglu(self._gate(x, users), self._up(x, users)), users)


def swiglu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """`gate * sigmoid(gate) * up`; overwrites `up`."""
    if gate.size > PART:
        in_parts(lambda part: _gated(gate[part], up[part]), len(gate), gate[0].size)
        return up
    return _gated(gate, up)


def _gated(gate: FloatArray, up: FloatArray) -> FloatArray:
    below = np.negative(gate)
    np.minimum(below, 88.0, out=below)  # exp overflows float32 beyond; sigmoid is below 1e-38 there
    np.exp(below, out=below)
    below += 1.0
    up *= gate
    up /= below
    return up


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding (Su et al. 2021), halves layout, in a new array.

    Args:
        x: (m, heads, D).
        cos: cosines (m, 1, 2, R / 2), the same twice; R <= D.
        sin: sines of the same shape, first negative.
    """
    half = cos.shape[-1]
    if x.shape[-1] > 2 * half:
        out = x.copy()
        out[..., : 2 * half] = rotate(x[..., : 2 * half], cos, sin)
        return out
    halves = x.reshape(*x.shape[:-1], 2, half)
    if x.size <= PART:
        return _turned(halves, cos, sin, None).reshape(x.shape)
    out = np.empty(halves.shape, np.float32)
    in_parts(lambda part: _turned(halves[part], cos[part], sin[part], out[part]), len(x), x[0].size)
    return out.reshape(x.shape)


def _turned(halves: FloatArray, cos: FloatArray, sin: FloatArray, out: FloatArray | None) -> FloatArray:
    turned = np.multiply(halves, cos, out=out)
    turned += halves[..., ::-1, :] * sin
    return turned
