"""Safetensors files: the only place that reads and writes them, bit for bit.

MLX's own writer does not report why it failed, and not always that it did; its reader keeps the file open and reads
lazily. Here the bytes exist before anything is written, and are hashed where they are created. The low-level functions
of the `safetensors` package have changed between releases, and its numpy functions lack bfloat16. The format is a
length, a JSON header and the data (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import mlx.core as mx

DTYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": np.uint16,
    "F32": np.float32,
}
"""numpy's type for each type of the format; bfloat16, which numpy does not have, is read as integers."""

PIECE = 2 << 20
"""Number of bytes copied at a time."""


class Tensor(NamedTuple):
    """An array as stored in a file: the format's name for its type, and its values in the type `DTYPES` gives."""

    kind: str
    values: NDArray[Any]

    @property
    def transposed(self) -> Tensor:
        return Tensor(self.kind, np.ascontiguousarray(self.values.T))

    @property
    def finite(self) -> bool:
        """Whether no value is infinite or NaN."""
        if self.kind == "BF16":
            return bool((self.values & 0x7F80 != 0x7F80).all())  # all exponent bits set
        return bool(np.isfinite(self.values).all())


class TensorFile(NamedTuple):
    """A file's tensors by name, its metadata, and its raw header."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    header: str


def parse(data: bytes) -> TensorFile:
    """Reads the bytes of a safetensors file.

    Raises:
        ValueError: the bytes are no such file.
    """
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        text = data[8:start].decode()
        header: dict[str, Any] = json.loads(text)
        metadata = header.pop("__metadata__", None) or {}  # MLX writes null
        tensors = {name: _tensor(entry, memoryview(data)[start:]) for name, entry in header.items()}
        if start + sum(tensor.values.nbytes for tensor in tensors.values()) != len(data):
            raise ValueError("its tensors do not fill the data")  # overlaps would make a small file a large one
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a safetensors file: {type(error).__name__}: {error}") from None
    return TensorFile(tensors, dict(metadata), text)


def _tensor(entry: Mapping[str, Any], body: memoryview) -> Tensor:
    kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    dtype = DTYPES[kind]
    if min([0, begin, *shape]) < 0 or end > len(body) or end - begin != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"{end - begin} bytes at {begin} of {len(body)} for the shape {shape}")
    return Tensor(kind, np.frombuffer(body[begin:end], dtype).reshape(shape))


def render(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, header: str = "") -> bytes:
    """The bytes of a safetensors file; equal input gives equal bytes.

    Args:
        tensors: by name.
        metadata: text by name.
        header: of another file. If it describes the same tensors, they are laid out as there, and it is kept.
    """
    if (order := _order(tensors, header)) is None:
        entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
        # Wide types first, so that every array is aligned to its own size, as readers that map the file expect.
        order, end = sorted(tensors, key=lambda name: (-tensors[name].values.itemsize, name)), 0
        for name in order:
            kind, values = tensors[name]
            entries[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
            end += values.nbytes
        header = json.dumps(entries, separators=(",", ":"))
        header += " " * (-len(header.encode()) % 8)
    head = header.encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *(tensors[name].values.tobytes() for name in order)])


def _order(tensors: Mapping[str, Tensor], header: str) -> list[str] | None:
    """The names in the order of a header; None when the header describes other tensors."""
    try:
        entries: dict[str, Any] = json.loads(header)
        entries.pop("__metadata__", None)
        order = sorted(entries, key=lambda name: entries[name]["data_offsets"])
        end = 0
        for name in order:
            kind, values = tensors[name]
            expected = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
            if entries[name] != expected:
                return None
            end += values.nbytes
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return order if len(order) == len(tensors) else None


def to_bytes(arrays: Mapping[str, mx.array | NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of arrays of MLX or numpy; the same arrays always give the same bytes.

    Raises:
        ValueError: an array has a type that the format does not know (complex64, float64).
    """
    own = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    tensors = {name: _kept(name, values, values.dtype) for name, values in own.items()}
    if len(own) < len(arrays):
        import mlx.core as mx

        mx.eval([array for name, array in arrays.items() if name not in own])
        for name, array in arrays.items():
            if array.dtype == mx.bfloat16:
                tensors[name] = Tensor("BF16", np.array(array.view(mx.uint16)))  # type: ignore[call-overload]
            elif name not in own:
                tensors[name] = _kept(name, np.array(array), array.dtype)
    return render(tensors, metadata)


def _kept(name: str, values: NDArray[Any], dtype: Any) -> Tensor:
    for kind, known in DTYPES.items():
        if values.dtype == known and kind != "BF16":
            return Tensor(kind, values)
    raise ValueError(f"{name} is of type {dtype}; a checkpoint holds {', '.join(DTYPES)}")


def from_bytes(data: bytes) -> dict[str, mx.array]:
    """The MLX arrays of a safetensors file.

    Raises:
        ValueError: the bytes are no such file.
    """
    import mlx.core as mx

    arrays = {}
    for name, (kind, values) in parse(data).tensors.items():
        array = _in_pieces(values)
        arrays[name] = array.view(mx.bfloat16) if kind == "BF16" else array
    mx.eval(arrays)
    return arrays


def _in_pieces(values: NDArray[Any]) -> mx.array:
    """An MLX array. MLX holds the interpreter while it copies: a long array is copied in pieces, so that other threads
    run.
    """
    import mlx.core as mx

    if values.nbytes <= PIECE:
        return mx.array(values)
    flat, step = values.reshape(-1), PIECE // values.itemsize
    pieces = [mx.array(flat[start : start + step]) for start in range(0, flat.size, step)]
    return mx.concatenate(pieces).reshape(values.shape)
