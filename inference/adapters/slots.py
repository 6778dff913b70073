"""The adapter weights of each layer by slot, and which slot each row of a forward pass uses.

A batch whose rows all use one slot costs two small products and no gather, a mixed batch uses `mx.gather_mm` with a
slot number per row, and a layer without weights in any slot costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

Ranks = tuple[tuple[str, int], ...]
Joint = tuple[np.ndarray, np.ndarray, Ranks]
"""Several adapters side by side: A (in, R), B (R, out), and each one's digest with its share of the R ranks."""


@dataclass(slots=True)
class Selection:
    """The slots that the rows of the running forward pass use: one for all, or an index (n,) if they differ."""

    uniform: int = 0
    index: mx.array | None = None
    capacity: int = 1
    rows: int = 0
    fed: int = 0  # tokens of each row

    def split(self, shape: tuple[int, ...]) -> int:
        """The number of rows along the first axis of a layer's input, which may be flattened rows of `fed` tokens.

        RuntimeError for any other input, whose parts cannot be matched to adapters.
        """
        if len(shape) > 1 and shape[0] in (self.rows, self.rows * self.fed):
            return self.rows
        raise RuntimeError(
            f"this architecture gives a linear layer input of shape {shape} for {self.rows} rows of {self.fed} tokens, "
            "so requests with different adapters cannot be told apart; serve one adapter at a time"
        )


@dataclass(slots=True)
class LayerSlots:
    """A layer's weights by slot. A plain object, so that the module tree does not treat it as parameters."""

    selection: Selection
    weights: dict[int, tuple[mx.array, mx.array]] = field(default_factory=dict)
    stack: tuple[mx.array, mx.array] | None = None
    views: dict[int, tuple[Any, np.ndarray, np.ndarray]] = field(default_factory=dict)
    joint: tuple[frozenset[str], Joint | None] | None = None

    def host(self, slot: int) -> tuple[np.ndarray, np.ndarray] | None:
        """A slot's A (in, r) and B (r, out) as float32 numpy arrays over the same memory; None if it has none."""
        pair = self.weights.get(slot)
        if pair is None:
            return None
        view = self.views.get(slot)
        if view is None or view[0] is not pair:
            a, b = (np.asarray(w.astype(mx.float32)) for w in pair)
            view = self.views[slot] = (pair, a, b)
        return view[1:]

    def joined(self, slot_of: Mapping[str, int]) -> Joint | None:
        """The weights of several adapters, possibly more than requested; None if they have none in this layer.

        They are ordered by digest: the order affects the last bits, and slot numbers depend on publication history.
        """
        if self.joint is None or not slot_of.keys() <= self.joint[0]:
            pairs = {digest: pair for digest in sorted(slot_of) if (pair := self.host(slot_of[digest])) is not None}
            joint = None
            if pairs:
                a, b = (np.concatenate([pair[i] for pair in pairs.values()], axis=1 - i) for i in (0, 1))
                joint = (a, b, tuple((digest, pair[0].shape[1]) for digest, pair in pairs.items()))
            self.joint = (frozenset(slot_of), joint)
        return self.joint[1]

    def stacked(self) -> tuple[mx.array, mx.array]:
        """All slots as A (S, in, r) and B (S, r, out), ranks padded with zeros; built on demand for mixed batches."""
        if self.stack is None or self.stack[0].shape[0] < self.selection.capacity:
            rank = max(a.shape[1] for a, _ in self.weights.values())
            first_a, first_b = next(iter(self.weights.values()))
            a = mx.zeros((self.selection.capacity, first_a.shape[0], rank), first_a.dtype)
            b = mx.zeros((self.selection.capacity, rank, first_b.shape[1]), first_b.dtype)
            for slot, (wa, wb) in self.weights.items():
                a[slot, :, : wa.shape[1]] = wa
                b[slot, : wb.shape[0]] = wb
            self.stack = (a, b)
        return self.stack


class AdaptedLinear(nn.Module):
    """A linear layer (plain or quantized) plus the low-rank term of each row's adapter."""

    def __init__(self, linear: nn.Module, selection: Selection) -> None:
        super().__init__()
        self.linear = linear
        self.slots = LayerSlots(selection)

    def __call__(self, x: mx.array) -> mx.array:
        """x (n, ..., in) -> (n, ..., out); also (n * L, ..., in), the shape in which expert layers see a batch."""
        y = self.linear(x)
        slots = self.slots
        if not slots.weights:
            return y
        index = slots.selection.index
        if index is None:
            pair = slots.weights.get(slots.selection.uniform)
            return y if pair is None else y + ((x @ pair[0]) @ pair[1]).astype(y.dtype)
        a, b = slots.stacked()
        by_row = x.reshape(slots.selection.split(x.shape), -1, x.shape[-1])
        low = mx.gather_mm(by_row, a, rhs_indices=index)
        return y + mx.gather_mm(low, b, rhs_indices=index).astype(y.dtype).reshape(y.shape)
