"""Adapter weights as the bytes of a safetensors file, made once for any number of servers and restarts.

MLX is loaded only when there is something to pack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inference.client.errors import RequestRefused
from inference.files import tensors
from inference.types import ADAPTER_NAME


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter ready to be sent.

    Attributes:
        body: the bytes of a safetensors file.
        scale: factor on the product of A and B.
        sha256: of the body.
        digest: the digest that the engine will report.
    """

    body: bytes = field(repr=False)
    scale: float
    sha256: str
    digest: str


def check_name(name: str) -> str:
    """The name, if valid for an adapter: it becomes part of a path."""
    if not isinstance(name, str) or not ADAPTER_NAME.fullmatch(name):
        raise RequestRefused(400, f"an adapter's name has 1 to 64 letters, digits, '.', '_' or '-'; got {name!r:.80}")
    return name


def pack(weights: Mapping[str, Any] | PackedAdapter, scale: float) -> PackedAdapter:
    """Evaluates weights (MLX or numpy arrays of float16, bfloat16 or float32) and copies them.

    Call it in the thread that made them: a lazy MLX array cannot be evaluated elsewhere.
    """
    if isinstance(weights, PackedAdapter):
        if weights.scale != scale:
            raise RequestRefused(400, f"these weights were packed with the scale {weights.scale}, not {scale}")
        return weights
    import mlx.core as mx

    from inference.adapters import adapter_digest

    arrays = {name: w if isinstance(w, mx.array) else mx.array(w) for name, w in weights.items()}
    for name, array in arrays.items():
        if array.dtype not in (mx.float32, mx.float16, mx.bfloat16):
            raise RequestRefused(400, f"{name} is {array.dtype}; adapters are float16, bfloat16 or float32")
        if array.ndim == 0:
            raise RequestRefused(400, f"{name} is a single number; expected a matrix")
    body = tensors.to_bytes(arrays)
    return PackedAdapter(body, float(scale), hashlib.sha256(body).hexdigest(), adapter_digest(arrays, scale))
