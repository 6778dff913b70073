"""Inference with MLX: an engine for many requests, adapters and versions over one base model, and clients of it.

Importing this package loads no MLX; the first use of a name below does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inference.client import (
        Client,
        HttpClient,
        Incompatible,
        LocalClient,
        Pool,
        RequestRefused,
        ServerUnavailable,
        check_compatible,
    )
    from inference.engine.engine import Engine
    from inference.engine.worker import AsyncEngine
    from inference.loading import AdapterWeights, ModelInfo, base_digest, clone_structure, load, read_adapter
    from inference.types import (
        AdapterError,
        AdapterInfo,
        Completion,
        ContextOverflow,
        InferenceError,
        ModelNotFound,
        Request,
        UnknownAdapter,
        UnknownRequest,
        UnsafeModel,
        UnsupportedModel,
    )

_HOMES = {
    "client": (
        "Client",
        "HttpClient",
        "Incompatible",
        "LocalClient",
        "Pool",
        "RequestRefused",
        "ServerUnavailable",
        "check_compatible",
    ),
    "engine.engine": ("Engine",),
    "loading": ("AdapterWeights", "ModelInfo", "base_digest", "clone_structure", "load", "read_adapter"),
    "types": (
        "AdapterError",
        "AdapterInfo",
        "Completion",
        "ContextOverflow",
        "InferenceError",
        "ModelNotFound",
        "Request",
        "UnknownAdapter",
        "UnknownRequest",
        "UnsafeModel",
        "UnsupportedModel",
    ),
    "engine.worker": ("AsyncEngine",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdapterError",
    "AdapterInfo",
    "AdapterWeights",
    "AsyncEngine",
    "Client",
    "Completion",
    "ContextOverflow",
    "Engine",
    "HttpClient",
    "Incompatible",
    "InferenceError",
    "LocalClient",
    "ModelInfo",
    "ModelNotFound",
    "Pool",
    "Request",
    "RequestRefused",
    "ServerUnavailable",
    "UnknownAdapter",
    "UnknownRequest",
    "UnsafeModel",
    "UnsupportedModel",
    "base_digest",
    "check_compatible",
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
