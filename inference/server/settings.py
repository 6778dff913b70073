"""A server's settings and their defaults, which `legos serve` reads too. Importing this file loads no MLX."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.types import MAX_LORA_RANK, Dequantize, Threads

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds.

    Attributes:
        body: largest body for a route that takes texts (`guard.LONG`); other routes take `guard.SHORT_BODY`.
        adapter_body: largest adapter, and the total of all adapters whose uploads have not been answered.
        bodies: total of all other bodies whose requests have not been answered.
        head: largest headers of a request.
        body_seconds: how long a body may take to arrive; an adapter six times that.
    """

    body: int = 4 << 20
    adapter_body: int = 512 << 20
    bodies: int = 256 << 20
    head: int = 16 << 10
    body_seconds: float = 10.0


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    Attributes:
        model: as for `Engine.load`.
        adapters: names and directories to publish at the start.
        adapter_root: directory from which clients may load adapters by path.
        keys: API keys; if empty, none is needed.
        hosts: names accepted in `Host`.
        max_queue: most choices waiting or running; beyond that, requests get 429.
        dequantize: as for `inference.load`.
        threads: threads of the matrix library on a CPU, as for `inference.forward.threads.use_threads`.
        stuck_after: seconds that one engine step may take before /health reports the engine as stuck. Long prompts on a
            CPU take a step of many seconds.
        engine: options of `Engine`.
    """

    model: str = "tiny"
    adapters: dict[str, Path] = field(default_factory=dict)
    adapter_root: Path | None = None
    max_adapters: int = 8
    max_lora_rank: int = MAX_LORA_RANK
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = LOOPBACK
    max_queue: int = 512
    dequantize: Dequantize = "auto"
    threads: Threads = 1
    stuck_after: float = 60.0
    limits: Limits = field(default_factory=Limits)
    engine: dict[str, Any] = field(default_factory=dict)
