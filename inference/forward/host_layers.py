"""Parts of a forward pass in numpy: which rows use which adapters, positions, norms, linear layers.

* One row is a matrix-vector product, which reads a matrix fastest along its longer side; a few rows are multiplied with
  slices of the weights, as in `few_rows`;
* for a few rows, different adapters take two products in total: their ranks side by side, with the others' set to zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.adapters import AdaptedLinear, AdapterVersion, Ranks
from inference.forward.few_rows import FEW_ROWS, product

FloatArray = npt.NDArray[np.float32]

_LONG = 16  # from this many tokens in a row, its adapter is applied to it alone
_STRETCH = 256
_JOINED = 1024  # rows times ranks up to which several adapters are multiplied as one


class Users:
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
        """Append (n * L, heads, D) after the valid entries of each slot."""
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
        self._cos = self._sin = np.zeros((0, dims // 2), np.float32)

    def __call__(self, positions: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """(m,) -> two arrays (m, 1, dims / 2)."""
        top = int(positions.max())
        if top >= len(self._cos):
            angles = np.arange(max(256, 2 * top))[:, None] * self._frequencies
            self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return self._cos[positions][:, None], self._sin[positions][:, None]


class Norm:
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


class Linear:
    """x @ W.T + bias, plus the low-rank term of each group's adapter."""

    def __init__(self, module: Any) -> None:
        self._slots = module.slots if isinstance(module, AdaptedLinear) else None
        linear = module.linear if isinstance(module, AdaptedLinear) else module
        self._weight = np.asarray(linear.weight)
        self._bias = np.asarray(linear.bias) if "bias" in linear else None
        self._turned = self._weight.T
        self.out = self._weight.shape[0]

    def turn(self) -> None:
        """Keeps a transposed copy of the weights, which is faster if they are `wide`."""
        self._turned = np.ascontiguousarray(self._weight.T)

    @property
    def wide(self) -> bool:
        """Whether there are more outputs than inputs."""
        return self.out > self._weight.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self._weight.nbytes

    def __call__(self, x: FloatArray, users: Users) -> FloatArray:
        """(m, in) -> (m, out)."""
        y = product(x, self._weight, self._turned)
        if self._bias is not None:
            y += self._bias
        if self._slots is not None and self._slots.weights and users.groups:
            self._adapt(x, y, users)
        return y

    def _adapt(self, x: FloatArray, y: FloatArray, users: Users) -> None:
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


class Mlp:
    """The gated feed-forward part of a block."""

    def __init__(self, mlp: Any) -> None:
        self._gate, self._up, self._down = (Linear(mlp[f"{name}_proj"]) for name in ("gate", "up", "down"))
        self.linears = [self._gate, self._up, self._down]

    def __call__(self, x: FloatArray, users: Users) -> FloatArray:
        """(m, H) -> (m, H)."""
        return self._down(swiglu(self._gate(x, users), self._up(x, users)), users)


def sigmoid(x: FloatArray) -> FloatArray:
    """The logistic function, in a new array."""
    out = np.negative(x)
    np.minimum(out, 88.0, out=out)  # exp overflows float32 beyond; the result is below 1e-38 there
    np.exp(out, out=out)
    out += 1.0
    return np.reciprocal(out, out=out)


def swiglu(gate: FloatArray, up: FloatArray) -> FloatArray:
    """`gate * sigmoid(gate) * up`; overwrites `up`."""
    below = np.negative(gate)
    np.minimum(below, 88.0, out=below)  # exp overflows float32 beyond; sigmoid is below 1e-38 there
    np.exp(below, out=below)
    below += 1.0
    up *= gate
    up /= below
    return up


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
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
