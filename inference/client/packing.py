"""Adapter weights as the bytes of a safetensors file: made once, sent to any number of servers, and kept for those that
come back after a restart. MLX is loaded only when there is something to pack."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inference.client.errors import RequestRefused

if TYPE_CHECKING:
    import mlx.core as mx

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter ready to be sent. sha256: of the body; digest: what the engine will call it."""

    body: bytes = field(repr=False)
    scale: float
    sha256: str
    digest: str


def check_name(name: str) -> str:
    """The name, if an adapter may have it: it becomes part of a path."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestRefused(400, f"an adapter's name has 1 to 64 letters, digits, '.', '_' or '-'; got {name!r:.80}")
    return name


def pack(weights: Mapping[str, Any] | PackedAdapter, scale: float) -> PackedAdapter:
    """Evaluate weights (MLX or numpy arrays of float16, bfloat16 or float32) and copy them.

    Called in the thread that made them: a lazy MLX array can be evaluated nowhere else.
    """
    if isinstance(weights, PackedAdapter):
        if weights.scale != scale:
            raise RequestRefused(400, f"these weights were packed with the scale {weights.scale}, not {scale}")
        return weights
    import mlx.core as mx

    from inference.adapters import adapter_digest

    arrays = {name: w if isinstance(w, mx.array) else mx.array(w) for name, w in weights.items()}
    body = _safetensors(arrays)
    return PackedAdapter(body, float(scale), hashlib.sha256(body).hexdigest(), adapter_digest(arrays, scale))


def _safetensors(arrays: Mapping[str, mx.array]) -> bytes:
    """The format: length of a JSON header, the header, the tensors' bytes.

    Written here because the library goes by way of numpy, which has no bfloat16.
    """
    import mlx.core as mx
    import numpy as np

    kinds = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
    head: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype not in kinds:
            raise RequestRefused(400, f"{name} is {array.dtype}; adapters are float16, bfloat16 or float32")
        if array.ndim == 0:
            raise RequestRefused(400, f"{name} is a single number; expected a matrix")
        parts.append(np.asarray(mx.contiguous(array).view(mx.uint8)).tobytes() if array.size else b"")
        head[name] = {
            "dtype": kinds[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(parts[-1])],
        }
        at += len(parts[-1])
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((struct.pack("<Q", len(text)), text, *parts))
