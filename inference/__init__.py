"""Inference with MLX: an in-process engine for many requests, adapters and versions over one base model.

Importing this package loads no MLX; the first use of a name below does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine
    from .loading import AdapterWeights, ModelInfo, base_digest, clone_structure, load, read_adapter
    from .types import (
        AdapterError,
        AdapterInfo,
        Completion,
        ContextOverflow,
        InferenceError,
        ModelNotFound,
        Request,
        UnknownRequest,
        UnsafeModel,
        UnsupportedModel,
    )

_HOMES = {
    "engine": ("Engine",),
    "loading": ("AdapterWeights", "ModelInfo", "base_digest", "clone_structure", "load", "read_adapter"),
    "types": (
        "AdapterError",
        "AdapterInfo",
        "Completion",
        "ContextOverflow",
        "InferenceError",
        "ModelNotFound",
        "Request",
        "UnknownRequest",
        "UnsafeModel",
        "UnsupportedModel",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdapterError",
    "AdapterInfo",
    "AdapterWeights",
    "Completion",
    "ContextOverflow",
    "Engine",
    "InferenceError",
    "ModelInfo",
    "ModelNotFound",
    "Request",
    "UnknownRequest",
    "UnsafeModel",
    "UnsupportedModel",
    "base_digest",
    "clone_structure",
    "load",
    "read_adapter",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
