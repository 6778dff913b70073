"""Safetensors files as MLX arrays."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from inference.files import tensors


@pytest.mark.parametrize("kind", ["F32", "BF16", "F16"])
def test_long_arrays_are_copied_in_pieces_and_equal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of 64 MB held the interpreter, so that /health took a tenth of a second."""
    sizes: list[int] = []
    array = mx.array
    monkeypatch.setattr(tensors, "PIECE", 1000)
    monkeypatch.setattr(mx, "array", lambda values: (sizes.append(values.nbytes), array(values))[1])
    values = np.random.default_rng(0).integers(0, 60_000, (130, 7)).astype(tensors.DTYPES[kind])
    written = {"long": tensors.Tensor(kind, values), "none": tensors.Tensor(kind, values[:0])}
    read = tensors.from_bytes(tensors.render(written))
    assert max(sizes) <= 1000 < values.nbytes and read["none"].shape == (0, 7)
    bits = np.array(read["long"].view(mx.uint16 if kind == "BF16" else read["long"].dtype))
    assert bits.shape == (130, 7) and bits.tobytes() == values.tobytes()
