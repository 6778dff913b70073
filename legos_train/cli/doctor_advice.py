"""What a newcomer should do about a report of `legos doctor`; nothing where all is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LITTLE_MEMORY, LITTLE_DISK = 2.0, 2.0
"""GiB below which the bundled model's training, and one small model's files, become tight."""


def advice(report: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that is missing or slow, with the command that changes it."""
    said = []
    device, blas, memory = (report.get(name) or {} for name in ("device", "blas", "memory"))
    if "install" in device:
        said.append(
            f"Models cannot run here yet: {device['install']}. Environments, endpoints and `play` work as it is."
        )
    mlx = blas.get("mlx") or {}
    if device.get("default") == "cpu" and mlx and not mlx.get("fast"):
        said.append(f"Matrix products are slow: {mlx.get('advice')}.")
    available = min(
        (memory[name] for name in ("available", "container_limit", "process_limit") if name in memory), default=None
    )
    if available is not None and available < LITTLE_MEMORY:
        said.append(
            f"Only {available} GiB of memory are free; training the bundled model takes up to {LITTLE_MEMORY:g}."
        )
    for name, place in (report.get("disk") or {}).items():
        if isinstance(place, Mapping) and not place["writable"]:
            said.append(f"{place['path']} ({name}) cannot be written.")
        elif isinstance(place, Mapping) and place["free"] < LITTLE_DISK:
            said.append(f"Only {place['free']} GiB are free in {place['path']} ({name}).")
    said += [f"The section {name} could not be made: {r['error']}" for name, r in report.items() if _failed(r)]
    return said


def _failed(section: Any) -> bool:
    return isinstance(section, Mapping) and set(section) == {"error"}
