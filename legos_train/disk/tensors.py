"""Arrays as the bytes of a safetensors file, and back, bit for bit.

MLX's own writer does not say why it failed, nor always that it did, and its reader keeps the file open and reads
late; here the bytes exist before anything is written and are hashed where they are made. The low-level functions of
the `safetensors` package have changed between its releases, and its numpy ones know no bfloat16. The format is a
length, a JSON header and the data (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

_KINDS = {
    "BOOL": (mx.bool_, np.bool_),
    "U8": (mx.uint8, np.uint8),
    "U16": (mx.uint16, np.uint16),
    "U32": (mx.uint32, np.uint32),
    "U64": (mx.uint64, np.uint64),
    "I8": (mx.int8, np.int8),
    "I16": (mx.int16, np.int16),
    "I32": (mx.int32, np.int32),
    "I64": (mx.int64, np.int64),
    "F16": (mx.float16, np.float16),
    "BF16": (mx.bfloat16, np.uint16),
    "F32": (mx.float32, np.float32),
}


def to_bytes(arrays: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file; the same arrays always give the same bytes.

    Raises:
        ValueError: an array has a type that the format does not know (complex64, float64).
    """
    mx.eval(list(arrays.values()))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    parts, end = [], 0
    # Wide types first, so that every array is aligned to its own size, as readers that map the file expect.
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.size, name)):
        array = arrays[name]
        kind = next((kind for kind, (dtype, _) in _KINDS.items() if dtype == array.dtype), None)
        if kind is None:
            raise ValueError(f"{name} is of type {array.dtype}; a checkpoint holds {', '.join(_KINDS)}")
        data = np.array(array.view(mx.uint16) if kind == "BF16" else array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + len(data)]}
        parts.append(data)
        end += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def from_bytes(data: bytes) -> dict[str, mx.array]:
    """The arrays of a safetensors file.

    Raises:
        ValueError: the bytes are no such file.
    """
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        found = {name: _array(entry, memoryview(data)[start:]) for name, entry in header.items()}
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a safetensors file: {type(error).__name__}: {error}") from None
    mx.eval(found)
    return found


def _array(entry: Mapping[str, Any], body: memoryview) -> mx.array:
    dtype, plain = _KINDS[entry["dtype"]]
    shape: list[int] = entry["shape"]
    begin, end = entry["data_offsets"]
    size = math.prod(shape) * np.dtype(plain).itemsize
    if min([0, begin, *shape]) < 0 or end > len(body) or end - begin != size:
        raise ValueError(f"{end - begin} bytes at {begin} of {len(body)} for the shape {shape}")
    array = mx.array(np.frombuffer(body[begin:end], plain).reshape(shape))
    return array.view(mx.bfloat16) if dtype == mx.bfloat16 else array
