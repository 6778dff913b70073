"""Ask an engine for completions and publish adapters: in this process, over HTTP, or at several servers.

interface.py: what all three have in common · local.py, http.py, pool.py: the three · wire.py: requests and answers as
JSON · packing.py: adapters as bytes · retry.py: when to try again · members.py, endpoint.py, publications.py:
what a pool keeps in mind · errors.py. Importing this package loads neither MLX nor an HTTP library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from inference.client.errors import BadAnswer, Incompatible, RequestRefused, ServerUnavailable
from inference.client.interface import ChatReply, Client, Sampling, ServerInfo, Usage, check_compatible
from inference.client.packing import Packed, pack
from inference.client.retry import Retry

if TYPE_CHECKING:
    from inference.client.http import HttpClient
    from inference.client.local import LocalClient
    from inference.client.pool import EndpointStatus, Pool

_HOME = {"HttpClient": "http", "LocalClient": "local", "Pool": "pool", "EndpointStatus": "pool"}

__all__ = [
    "BadAnswer",
    "ChatReply",
    "Client",
    "EndpointStatus",
    "HttpClient",
    "Incompatible",
    "LocalClient",
    "Packed",
    "Pool",
    "RequestRefused",
    "Retry",
    "Sampling",
    "ServerInfo",
    "ServerUnavailable",
    "Usage",
    "check_compatible",
    "pack",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
