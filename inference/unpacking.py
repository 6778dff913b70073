"""Quantised weights on a CPU: turned into float32 on loading or, if memory is short, on use.

MLX's CPU kernels read packed weights once for every token, some twenty times slower than a BLAS matrix product in
float32. On Metal and CUDA they are fast, so `auto` changes nothing there.

The values are those of the packed weights with float32 scales, so an adapter trained on one form fits the other, and a
base model's identity, `base_digest`, remains that of its files.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast, get_args

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn
from mlx.utils import tree_unflatten
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from inference.types import Dequantize

FloatArray = npt.NDArray[np.float32]
logger = logging.getLogger(__name__)

SHARE = 0.5
"""Share of the free memory that dequantised weights may take."""

_FEW_TOKENS = 1
"""Up to this many tokens the packed kernel is faster than unpacking the layer."""
_MANY_TOKENS = 512
"""From this many on, MLX's own, slower unpacking is a small part of a product, and nothing is computed early."""
_CACHED = 1 << 18
"""How many numbers are unpacked at a time."""
_BYTE_BITS = (2, 4, 8)

Room = Callable[[int], AbstractContextManager[None]]
"""A context manager for code that allocates the given number of bytes."""


def unpack(model: nn.Module, how: Dequantize = "auto", room: Room | None = None) -> None:
    """Gives the quantised layers of a model plain weights, depending on `how`; see the module.

    Args:
        model: changed in place; its weights may still be lazy.
        how: `off` leaves packed weights as they are. `on` turns them into plain ones: float32 on a CPU, elsewhere the
            type of their scales. `auto` does that on a CPU if they take at most `SHARE` of the free memory; if they
            take more, a layer is unpacked whenever it is used.
        room: on a CPU, entered with the bytes of the plain weights while they are made.

    Raises:
        ValueError: `how` is something else.
    """
    if how not in get_args(Dequantize):
        raise ValueError(f"dequantize must be one of {', '.join(get_args(Dequantize))}; got {how!r}")
    cpu = on_cpu()
    layers = _quantized(model)
    if how == "off" or not layers or not (cpu or how == "on"):
        return
    packed = sum(array.nbytes for layer, _ in layers for array in layer.values() if isinstance(array, mx.array))
    wide = sum(_size(layer) for layer, _ in layers) * (4 if cpu else 2)
    said = f"{_gib(packed)} of quantised weights take {_gib(wide)} as {'float32' if cpu else 'their scales'}"
    if unpacks_at_load(how, wide):
        logger.warning("%s, which is faster here; with dequantize=off they stay packed", said)
        with room(wide) if room is not None and cpu else nullcontext():
            while layers:
                layer, paths = layers.pop()
                plain = _plain(layer, mx.float32 if cpu else None)
                del layer  # frees each packed layer as its plain copy appears
                for path in paths:
                    model.update_modules(tree_unflatten([(path, plain)]))
        return
    logger.warning(
        "%s, more than %d %% of the free %s: each layer is unpacked when it is used, which is slow for few tokens; "
        "dequantize=on unpacks them all at once",
        *(said, round(100 * SHARE), _gib(free_memory())),
    )
    for layer, _ in layers:
        if (kind := _WHEN_USED.get(type(layer))) is not None:
            layer.__class__ = kind


def unpacks_at_load(how: Dequantize, wide: int) -> bool:
    """Whether quantised weights that would take `wide` bytes as plain ones are unpacked on loading."""
    return how == "on" or (how == "auto" and on_cpu() and wide <= SHARE * free_memory())


def on_cpu() -> bool:
    """Whether models run on a CPU."""
    return mx.default_device().type == mx.DeviceType.cpu


def free_memory() -> int:
    """Bytes that this process can take without swapping: what the machine has free, or what its container allows.

    If the system does not report free memory, half of all memory.
    """
    info = Path("/proc/meminfo")
    if not info.is_file():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    free = int(lines["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.stat"
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()).isdigit():
        taken = dict(line.split() for line in used.read_text().splitlines())
        free = min(free, max(int(most) - int(taken.get("anon", 0)), 0))
    return free


class UnpackedLinear(nn.QuantizedLinear):
    """A quantised linear layer that is unpacked for each product, in both directions."""

    def __call__(self, x: mx.array) -> mx.array:
        """x (..., in) -> (..., out)."""
        y = _product(self, x)
        return y + self["bias"] if "bias" in self else y


class UnpackedEmbedding(nn.QuantizedEmbedding):
    """The same for a quantised embedding that is also the head."""

    def as_linear(self, x: mx.array) -> mx.array:
        """x (..., dims) -> logits (..., tokens)."""
        return _product(self, x)


_WHEN_USED: dict[type, type] = {nn.QuantizedLinear: UnpackedLinear, nn.QuantizedEmbedding: UnpackedEmbedding}
_PLAIN: dict[type, Any] = {
    nn.QuantizedLinear: functools.partial(nn.Linear, bias=False),
    nn.QuantizedEmbedding: nn.Embedding,
    QuantizedSwitchLinear: lambda a, b: SwitchLinear(a, b, 1, bias=False),
    QuantizedMultiLinear: lambda a, b: MultiLinear(a, b, 1),
}


def _quantized(model: nn.Module) -> list[tuple[Any, list[str]]]:
    """Every quantised layer with its paths; layers of custom classes are left out."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for path, module in model.named_modules():
        if type(module) in _PLAIN:
            found.setdefault(id(module), (module, []))[1].append(path)
    return list(found.values())


def _size(layer: Any) -> int:
    return int(layer.weight.size) * 32 // int(layer.bits)


def _plain(layer: Any, dtype: mx.Dtype | None) -> nn.Module:
    """The layer with plain weights, evaluated."""
    plain = _PLAIN[type(layer)](1, 1)
    plain.weight = _unpacked(layer, dtype)
    if "bias" in layer:
        plain.bias = layer.bias if dtype is None else layer.bias.astype(dtype)
    mx.eval(plain.parameters())
    return cast(nn.Module, plain)


def _unpacked(layer: Any, dtype: mx.Dtype | None) -> mx.array:
    if dtype is not None and dtype == mx.float32 and (table := _ByteTable.of(layer)) is not None:
        out = mx.zeros((*layer.weight.shape[:-1], table.width))
        mx.eval(out)
        numbers = np.asarray(out).reshape(-1, table.width)  # MLX's own memory
        for rows in table.stretches():
            table.unpack(rows, numbers[rows])
        return out
    scales, biases = layer.scales, layer.get("biases")
    if layer.mode == "affine" and dtype is not None:  # other modes have 8-bit scales
        scales, biases = scales.astype(dtype), biases.astype(dtype)
    how = {"global_scale": layer.get("global_scale"), "dtype": dtype}
    return mx.dequantize(layer.weight, scales, biases, layer.group_size, layer.bits, layer.mode, **how)


class _ByteTable:
    """`mx.dequantize` to float32, a few rows at a time, for weights with a whole number of values to a byte.

    It takes a quarter of the time: each byte is one table lookup, and its values are still in the cache when scaled.
    """

    def __init__(self, layer: Any) -> None:
        self.width = layer.weight.shape[-1] * 32 // layer.bits
        self._step = max(_CACHED // self.width, 16)
        scales, biases = layer.scales.astype(mx.float32), layer.biases.astype(mx.float32)
        self._words = np.asarray(layer.weight).reshape(-1, layer.weight.shape[-1]).view(np.uint8)
        self.rows, self._groups = len(self._words), scales.shape[-1]
        self._scales, self._biases = (np.asarray(a).reshape(self.rows, self._groups, 1) for a in (scales, biases))
        each = 8 // layer.bits
        table = (np.arange(256)[:, None] >> np.arange(each) * layer.bits) & (2**layer.bits - 1)
        self._item = {1: np.uint32, 2: np.uint64, 4: np.complex128}[each]  # as wide as the numbers of a byte
        self._entries = table.astype(np.float32).view(self._item)[:, 0]

    @classmethod
    def of(cls, layer: Any) -> _ByteTable | None:
        """The table for a layer; None if it is packed in another way."""
        return cls(layer) if layer.mode == "affine" and layer.bits in _BYTE_BITS else None

    def stretches(self) -> Iterator[slice]:
        """The rows, in stretches small enough for their numbers to stay in the cache."""
        return (slice(start, min(start + self._step, self.rows)) for start in range(0, self.rows, self._step))

    def unpack(self, rows: slice, out: FloatArray) -> None:
        """Writes rows (n, width) to `out`."""
        np.take(self._entries, self._words[rows], out=out.view(self._item), mode="clip")
        grouped = out.reshape(len(out), self._groups, -1)
        grouped *= self._scales[rows]
        grouped += self._biases[rows]

    def product(self, x: FloatArray) -> FloatArray:
        """x (n, width) times the transposed weights, (n, rows)."""
        y = np.empty((len(x), self.rows), np.float32)
        for rows, part in self._parts():
            np.matmul(x, part.T, out=y[:, rows])
        return y

    def gradient(self, cotangent: FloatArray) -> FloatArray:
        """Gradient of `product`: cotangent (n, rows) times the weights, (n, width)."""
        x = np.zeros((len(cotangent), self.width), np.float32)
        for rows, part in self._parts():
            x += cotangent[:, rows] @ part
        return x

    def _parts(self) -> Iterator[tuple[slice, FloatArray]]:
        """Rows with their numbers; the next ones overwrite them."""
        room = np.empty((self._step, self.width), np.float32)
        for rows in self.stretches():
            part = room[: rows.stop - rows.start]
            self.unpack(rows, part)
            yield rows, part


def _product(layer: Any, x: mx.array) -> mx.array:
    """x (..., in) times the transposed weights; the backward pass unpacks them again instead of keeping them."""
    parts = layer.weight, layer.scales, layer.get("biases"), layer.group_size, layer.bits, layer.mode
    if x.size <= _FEW_TOKENS * x.shape[-1]:
        weight, scales, biases, *how = parts
        return mx.quantized_matmul(x, weight, scales, biases, True, *how)
    table = _ByteTable.of(layer) if x.size < _MANY_TOKENS * x.shape[-1] and x.dtype == mx.float32 else None

    def forward(x: mx.array) -> mx.array:
        if table is None:
            return x @ mx.dequantize(*parts, dtype=x.dtype).T
        y = table.product(np.asarray(x).reshape(-1, table.width))
        return mx.array(y).reshape(*x.shape[:-1], table.rows)

    def backward(x: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
        if table is None:
            return cotangent @ mx.dequantize(*parts, dtype=x.dtype)
        return mx.array(table.gradient(np.asarray(cotangent).reshape(-1, table.rows))).reshape(x.shape)

    product = mx.custom_function(forward)
    product.vjp(backward)
    return cast(mx.array, product(x))


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
