"""Memory and disk: how much is free, and how much models and runs take. Standard library only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

MOST_FILES = 20_000


def memory() -> dict[str, Any]:
    """In GiB: the machine's memory, what is free now, this process's limit, and a container's limit if there is one."""
    facts: dict[str, Any] = {"total": _gib(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))}
    info = Path("/proc/meminfo")
    if info.is_file():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        facts["available"] = _gib(int(lines["MemAvailable"].split()[0]) * 1024)
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        facts["container_limit"] = _gib(int(text))
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        facts["process_limit"] = _gib(soft)
    return facts


def disk() -> dict[str, Any]:
    """Free GiB where runs and models are stored."""
    places = {"here": Path.cwd(), "models": hub_cache(), "temporary": Path(os.environ.get("TMPDIR") or "/tmp")}  # noqa: S108
    facts = {}
    for name, path in places.items():
        there = next(p for p in (path, *path.parents) if p.exists())
        facts[name] = {
            "path": str(path),
            "free": _gib(shutil.disk_usage(there).free),
            "writable": os.access(there, os.W_OK),
        }
    return facts


def hub_cache() -> Path:
    """Where Hugging Face's libraries keep models, by their own rules."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))  # there may be no home


def caches() -> dict[str, Any]:
    hub = hub_cache()
    models = sorted(p for p in hub.glob("models--*") if p.is_dir()) if hub.is_dir() else []
    runs = sorted(p.parent for p in Path("runs").glob("*/config.toml"))
    return {
        "models": {"path": str(hub), "count": len(models), **_size(hub)},
        "runs": {"path": str(Path("runs").resolve()), "count": len(runs), **_size(Path("runs"))},
    }


def _size(folder: Path) -> dict[str, Any]:
    total = count = 0
    for root, _, names in os.walk(folder):
        for name in names:
            count += 1
            if count > MOST_FILES:
                return {"gib": _gib(total), "note": f"only the first {MOST_FILES} files were counted"}
            path = os.path.join(root, name)
            if not os.path.islink(path):
                try:
                    total += os.path.getsize(path)
                except OSError:
                    continue  # removed while we were counting
    return {"gib": _gib(total)}


def _gib(size: float) -> float:
    return round(size / 2**30, 2)
