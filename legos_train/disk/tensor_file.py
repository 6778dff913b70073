"""Safetensors files as raw matrices: enough to transpose LoRA weights without a tensor library, bit for bit.

Values are never converted: bfloat16, which numpy does not have, travels as 16-bit integers. The format is a length, a
JSON header and the data (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legos_train.errors import ExportError

_TYPES = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
_EXPONENT = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}
"""All exponent bits set: infinity or NaN."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """`bits` (rows, columns): the values of type `kind` ("F32", "F16" or "BF16") as unsigned integers."""

    kind: str
    bits: NDArray[Any]

    @property
    def transposed(self) -> Matrix:
        return Matrix(self.kind, np.ascontiguousarray(self.bits.T))

    @property
    def finite(self) -> bool:
        mask = _EXPONENT[self.kind]
        return bool(((self.bits & mask) != mask).all())

    def float32(self) -> NDArray[np.float32]:
        """The values (rows, columns)."""
        if self.kind == "BF16":
            return (self.bits.astype(np.uint32) << 16).view(np.float32)
        return self.bits.view(np.float32 if self.kind == "F32" else np.float16).astype(np.float32)


def read(path: Path) -> tuple[dict[str, Matrix], str, dict[str, str]]:
    """The matrices of a file by name, its header as it stands there, and the header's metadata.

    Raises:
        ExportError: the file is missing, damaged, or holds something other than matrices of the three types.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ExportError(f"{str(path)!r} does not exist") from None
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        text = data[8:start].decode()
        header: dict[str, Any] = json.loads(text)
        metadata = header.pop("__metadata__", None) or {}  # MLX writes null
        found = {name: _matrix(path, name, entry, data[start:]) for name, entry in header.items()}
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(f"{str(path)!r} is no whole safetensors file: {type(error).__name__}: {error}") from None
    return found, text, dict(metadata)


def _matrix(path: Path, name: str, entry: Mapping[str, Any], body: bytes) -> Matrix:
    kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if kind not in _TYPES:
        raise ExportError(f"{str(path)!r}: {name} is {kind}; accepted are {', '.join(_TYPES)}")
    if len(shape) != 2:
        raise ExportError(f"{str(path)!r}: {name} has shape {shape}; a matrix is needed (experts have no mapping)")
    return Matrix(kind, np.frombuffer(body[begin:end], _TYPES[kind]).reshape(shape))


def render(matrices: Mapping[str, Matrix], metadata: Mapping[str, str]) -> bytes:
    """A file: 32-bit values first, then by name, as the trainer's own files are; equal input gives equal bytes."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in sorted(matrices, key=lambda name: (-matrices[name].bits.itemsize, name)):
        matrix = matrices[name]
        size = matrix.bits.nbytes
        header[name] = {"dtype": matrix.kind, "shape": list(matrix.bits.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":"))
    return render_as(matrices, text + " " * (-len(text.encode()) % 8)) or b""


def render_as(matrices: Mapping[str, Matrix], text: str) -> bytes | None:
    """The file with a given header; None when the header is of other tensors."""
    try:
        header: dict[str, Any] = json.loads(text)
        header.pop("__metadata__", None)
        places = {name: (e["dtype"], tuple(e["shape"]), tuple(e["data_offsets"])) for name, e in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if {n: (k, s) for n, (k, s, _) in places.items()} != {n: (m.kind, m.bits.shape) for n, m in matrices.items()}:
        return None
    head = text.encode()
    parts = [len(head).to_bytes(8, "little"), head]
    end = 0
    for name in sorted(places, key=lambda name: places[name][2]):
        if places[name][2] != (end, end + matrices[name].bits.nbytes):
            return None
        end = places[name][2][1]
        parts.append(np.ascontiguousarray(matrices[name].bits).tobytes())
    return b"".join(parts)
