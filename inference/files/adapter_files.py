"""Read adapters from directories and bytes: a consistent snapshot, size-checked before parsing, then validated."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from inference.adapters import check_adapter, linear_shapes
from inference.files import peft_files, tensors
from inference.files.adapter_folder import CONFIG, PEFT_WEIGHTS, WEIGHTS
from inference.types import AdapterError

_TRIES, _SETTLED_NS = 50, 20_000_000
MAX_ADAPTER_HEADER = 512 << 10


@dataclass(frozen=True)
class AdapterWeights:
    """An adapter read from disk: tensors under mlx-lm's names, as `Engine.publish` takes them."""

    weights: dict[str, mx.array]
    scale: float
    rank: int
    config: dict[str, Any]


def read_adapter(path: str | Path, model: nn.Module | None = None, *, max_rank: int = 1024) -> AdapterWeights:
    """Reads a LoRA adapter in mlx-lm's layout: adapters.safetensors and adapter_config.json in one directory.

    Falls back to PEFT's adapter_model.safetensors. Given a model, checks names and shapes against it. Waits for files
    that are still being written. Raises AdapterError naming the file or tensor at fault.
    """
    folder = Path(path)
    if weights_file(folder) == PEFT_WEIGHTS:
        return _read_peft(folder, model, max_rank)
    config_file, weight_file = folder / CONFIG, folder / WEIGHTS
    for file in (config_file, weight_file):
        if not file.is_file():
            raise AdapterError(f"no adapter at {folder}: {file.name} is missing (mlx-lm's layout is expected)")
    try:
        text, body = _read_together(folder, (config_file.name, weight_file.name))
        config = json.loads(text)
        weights = adapter_tensors(body)
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"the adapter at {folder} is damaged: {error}") from error
    kind = config.get("fine_tune_type", "lora") if isinstance(config, dict) else None
    parameters = config.get("lora_parameters") if isinstance(config, dict) else None
    if kind != "lora" or not isinstance(parameters, dict):
        raise AdapterError(f"{config_file}: fine_tune_type 'lora' with lora_parameters is accepted, got {kind!r}")
    scale, rank = parameters.get("scale"), parameters.get("rank")
    if not isinstance(scale, (int, float)) or not math.isfinite(scale) or not isinstance(rank, int) or rank < 1:
        raise AdapterError(
            f"{config_file}: a finite scale and a rank of at least 1 are needed, got {scale!r}, {rank!r}"
        )
    shapes = linear_shapes(model) if model is not None else _own_shapes(weights)
    check_adapter(shapes, weights, scale=float(scale), max_rank=max_rank)
    _check_rank(weights, rank, config_file.name)
    return AdapterWeights(weights, float(scale), rank, config)


def weights_file(folder: Path) -> str:
    """The file with an adapter's weights: PEFT's if mlx-lm's is missing."""
    return WEIGHTS if (folder / WEIGHTS).exists() or not (folder / PEFT_WEIGHTS).is_file() else PEFT_WEIGHTS


def _read_peft(folder: Path, model: nn.Module | None, max_rank: int) -> AdapterWeights:
    try:
        text, body = _read_together(folder, (CONFIG, PEFT_WEIGHTS))
        adapter_file(body)  # bounds
        config = json.loads(text)
        matrices, scale, rank = peft_files.from_peft(body, config)
        weights = adapter_tensors(tensors.render(matrices))
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise AdapterError(f"the adapter at {folder} cannot be read: {error}") from error
    shapes = linear_shapes(model) if model is not None else _own_shapes(weights)
    check_adapter(shapes, weights, scale=scale, max_rank=max_rank)
    _check_rank(weights, rank, CONFIG)
    return AdapterWeights(weights, scale, rank, config)


def _check_rank(weights: Mapping[str, mx.array], rank: int, config: str) -> None:
    for name in sorted(weights):
        got = weights[name].shape[1 if name.endswith("lora_a") else 0]
        if got != rank:
            raise AdapterError(f"{name} has rank {got}, but {config} says {rank}")


def _read_together(folder: Path, names: tuple[str, ...]) -> list[bytes]:
    """A consistent snapshot of one directory's files, even if another directory takes its name meanwhile."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(_TRIES):
            before = [_stamp(name, directory) for name in names]
            found = []
            for name in names:
                with open(os.open(name, os.O_RDONLY, dir_fd=directory), "rb") as file:
                    found.append(file.read())
            # File times advance in steps of a few milliseconds: two changes within one step look like one.
            settled = all(not 0 <= time.time_ns() - changed < _SETTLED_NS for _, changed, _ in before)
            if settled and before == [_stamp(name, directory) for name in names]:
                return found
            time.sleep(_SETTLED_NS / 1e9)
    finally:
        os.close(directory)
    raise AdapterError(f"the adapter at {folder} is being written: it changed while it was read; try again")


def _stamp(name: str, directory: int) -> tuple[int, int, int]:
    found = os.stat(name, dir_fd=directory)
    return found.st_ino, found.st_mtime_ns, found.st_size


def adapter_file(body: bytes) -> tensors.TensorFile:
    """Parses a safetensors file from bytes. AdapterError when it is damaged or its header is too long."""
    size = int.from_bytes(body[:8], "little")
    if size > len(body):
        raise AdapterError("the bytes are not a safetensors file of an adapter: its header is cut off")
    if size > MAX_ADAPTER_HEADER:
        raise AdapterError(
            f"the header of the file has {size} bytes; at most {MAX_ADAPTER_HEADER}, some 4,000 tensors, are read"
        )
    try:
        return tensors.parse(body)
    except ValueError as error:
        raise AdapterError(f"the bytes are not a safetensors file of an adapter: {error}") from error


def adapter_tensors(body: bytes) -> dict[str, mx.array]:
    """The tensors of a safetensors file, from its bytes. AdapterError when it is damaged or holds unsupported types."""
    kinds = {name: tensor.kind for name, tensor in adapter_file(body).tensors.items()}
    for name, kind in kinds.items():
        if kind not in ("F32", "F16", "BF16"):
            raise AdapterError(f"{name} is {kind}; accepted are F32, F16, BF16")
    return tensors.from_bytes(body)


def _own_shapes(weights: dict[str, mx.array]) -> dict[str, tuple[int, int]]:
    """The layer shapes that the tensors themselves imply, for a check without a model."""
    paths = {name.rpartition(".")[0] for name in weights}
    shapes = {}
    for path in paths:
        a, b = weights.get(f"{path}.lora_a"), weights.get(f"{path}.lora_b")
        shapes[path] = (a.shape[0] if a is not None and a.ndim else 0, b.shape[-1] if b is not None and b.ndim else 0)
    return shapes
