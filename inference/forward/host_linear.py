"""Linear layers in numpy, with the adapters of their rows.

* One row is a matrix-vector product, which reads a matrix fastest along its longer side; a few rows are multiplied with
  slices of the weights, as in `few_rows`;
* layers with the same input are one product where copies of their weights lie side by side;
* for a few rows, different adapters take two products in total: their ranks side by side, with the others' set to zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.adapters import AdaptedLinear, AdapterVersion, Ranks
from inference.forward.few_rows import FEW_ROWS, copy_pays, product, undivided

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


class Linear:
    """x @ W.T + bias, plus the low-rank term of each group's adapter.

    Attributes:
        transposed: the weights (in, out), a view or a copy.
    """

    def __init__(self, module: Any) -> None:
        self._slots = module.slots if isinstance(module, AdaptedLinear) else None
        linear = module.linear if isinstance(module, AdaptedLinear) else module
        self._weight = np.asarray(linear.weight)
        self._bias = np.asarray(linear.bias) if "bias" in linear else None
        self.transposed = self._weight.T
        self.out = self._weight.shape[0]

    def keep_transposed(self) -> None:
        """Keeps a transposed copy of the weights, which is faster where `copy_pays`."""
        self.transposed = np.ascontiguousarray(self._weight.T)

    @property
    def wide(self) -> bool:
        """Whether there are more outputs than inputs."""
        return self.out > self._weight.shape[1]

    @property
    def copy_pays(self) -> bool:
        """Whether a transposed copy makes products faster."""
        return copy_pays(*self._weight.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self._weight.nbytes

    def __call__(self, x: FloatArray, users: Users) -> FloatArray:
        """(m, in) -> (m, out)."""
        return self.complete(x, product(x, self._weight, self.transposed), users)

    def complete(self, x: FloatArray, y: FloatArray, users: Users) -> FloatArray:
        """Adds the bias and the low-rank terms to y = x @ W.T, in place."""
        if self._bias is not None:
            y += self._bias
        if self._slots is not None and self._slots.weights and users.groups:
            self._adapt(x, y, users)
        return y

    def _adapt(self, x: FloatArray, y: FloatArray, users: Users) -> None:
        """Adds each row's low-rank term to y."""
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


class FusedLinear:
    """Layers with the same input, as one product where that is fastest."""

    def __init__(self, *layers: Linear) -> None:
        self.layers = layers
        self._transposed: FloatArray | None = None
        ends = list(itertools.accumulate(layer.out for layer in layers))
        self._columns = [slice(end - layer.out, end) for layer, end in zip(layers, ends, strict=True)]

    def keep_transposed(self) -> None:
        """Keeps a transposed copy of all weights side by side."""
        self._transposed = np.concatenate([layer.transposed for layer in self.layers], axis=1)
        for layer, columns in zip(self.layers, self._columns, strict=True):
            layer.transposed = self._transposed[:, columns]

    def __call__(self, x: FloatArray, users: Users) -> FloatArray:
        """(m, in) -> (m, out of all layers)."""
        if self._transposed is None or not undivided(len(x), self._transposed.shape[1], len(self._transposed)):
            return np.concatenate([layer(x, users) for layer in self.layers], axis=1)
        y = x @ self._transposed
        for layer, columns in zip(self.layers, self._columns, strict=True):
            layer.complete(x, y[:, columns], users)
        return y
