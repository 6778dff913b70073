"""Whether adapter weights fit a model and are finite, and the digest that identifies them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from inference.types import AdapterError

Pairs = dict[str, tuple[mx.array, mx.array]]
"""Layer path -> A (in, rank), B (rank, out) with the scale folded in."""


def check_adapter(
    shapes: Mapping[str, tuple[int, int]],
    weights: Mapping[str, mx.array],
    *,
    scale: float,
    max_rank: int,
    other: Mapping[str, str] | None = None,
    dtype: mx.Dtype = mx.float32,
) -> Pairs:
    """Pair up A and B per layer, check names, shapes and ranks, fold the scale into B, evaluate, and check that
    everything is finite before and after.

    Args:
        shapes: the model's `linear_shapes`.
        weights: mlx-lm's names and arrays.
        scale: factor on the product of A and B.
        max_rank: highest rank accepted.
        other: layers of other kinds, for the message.
        dtype: the model's; values must be finite in it.

    Raises:
        AdapterError: names the first offending tensor.
    """
    if not weights:
        raise AdapterError("the adapter holds no tensors; expected pairs named <layer>.lora_a and <layer>.lora_b")
    if not math.isfinite(scale):
        raise AdapterError(f"the adapter's scale is {scale}; a finite number is needed")
    for name in sorted(weights):
        _check_tensor(shapes, weights, name, max_rank, other or {})
    mx.eval(dict(weights))
    for name in sorted(weights):
        if not _finite(weights[name]):
            raise AdapterError(f"{name} holds NaN or infinity; the adapter is not published")
    paths = sorted({name.rpartition(".")[0] for name in weights})
    # New array objects: in-place changes to the caller's arrays must not affect served weights.
    pairs = {p: (_served(weights[f"{p}.lora_a"], 1.0), _served(weights[f"{p}.lora_b"], scale)) for p in paths}
    mx.eval(pairs)
    for path, (_, b) in pairs.items():
        if not (_finite(b) and (dtype == mx.float32 or _finite(b.astype(dtype)))):
            raise AdapterError(
                f"{path}.lora_b times the scale {scale:g} has values too large for {dtype}; it is not published"
            )
    return pairs


def _finite(weight: mx.array) -> bool:
    """Checks in numpy where it knows the type: ten times faster on a CPU, and it leaves no stream in the thread."""
    if weight.dtype == mx.float32:
        return bool(np.isfinite(np.asarray(weight)).all())
    return bool(mx.isfinite(weight).all().item())


def _served(weight: mx.array, scale: float) -> mx.array:
    """A scaled copy; on a CPU in float32, since MLX's `gather_mm` has no other type there."""
    if weight.dtype == mx.float32:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            return mx.array(np.asarray(weight) * np.float32(scale))
    return (weight.astype(mx.float32) if mx.default_device().type == mx.DeviceType.cpu else mx.array(weight)) * scale


def _check_tensor(
    shapes: Mapping[str, tuple[int, int]],
    weights: Mapping[str, mx.array],
    name: str,
    max_rank: int,
    other: Mapping[str, str],
) -> None:
    path, _, leaf = name.rpartition(".")
    if leaf not in ("lora_a", "lora_b"):
        raise AdapterError(f"{name}: only lora_a and lora_b tensors can be served, got a {leaf!r}")
    if path in other:
        raise AdapterError(
            f"{name}: {path!r} is an {other[path]} layer; adapters on {other[path]} layers are not served, only on "
            "linear layers (train with lora_parameters.keys that leave it out)"
        )
    if path not in shapes:
        block = path.rpartition(".")[0]
        close = ", ".join([p for p in sorted(shapes) if p.rpartition(".")[0] == block] or sorted(shapes)[:3])
        raise AdapterError(f"{name}: the model has no linear layer {path!r} (it has {close}, ...)")
    partner = f"{path}.{'lora_b' if leaf == 'lora_a' else 'lora_a'}"
    if partner not in weights:
        raise AdapterError(f"{name} has no partner {partner}")
    shape, (width, out) = tuple(weights[name].shape), shapes[path]
    expected = (width, "rank") if leaf == "lora_a" else ("rank", out)
    if len(shape) != 2 or shape[0 if leaf == "lora_a" else 1] != (width if leaf == "lora_a" else out):
        raise AdapterError(f"{name} has shape {shape}, expected ({expected[0]}, {expected[1]})")
    rank = shape[1 if leaf == "lora_a" else 0]
    if not 1 <= rank <= max_rank:
        raise AdapterError(f"{name} has rank {rank}; 1 to {max_rank} are accepted (max_lora_rank)")
    if leaf == "lora_b" and weights[partner].ndim == 2 and weights[partner].shape[1] != rank:
        raise AdapterError(f"{name} has rank {rank}, but {partner} has rank {weights[partner].shape[1]}")


def adapter_digest(weights: Mapping[str, mx.array], scale: float) -> str:
    """SHA-256 over names, types, shapes, bytes and scale: equal digests mean equal behaviour on the same base."""
    digest = hashlib.sha256(repr(float(scale)).encode())
    for name in sorted(weights):
        w = weights[name]
        digest.update(f"{name} {w.dtype} {tuple(w.shape)}".encode())
        digest.update(np.asarray(mx.contiguous(w).view(mx.uint8)).tobytes())
    return digest.hexdigest()
