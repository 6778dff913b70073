"""Which distributions are installed, and what the extras of this package lack. Standard library only."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any

PACKAGES = (
    "legos", "numpy", "pettingzoo", "gymnasium", "pydantic", "tyro", "rich", "mlx", "mlx-lm", "transformers",
    "tokenizers", "safetensors", "scipy-openblas32", "threadpoolctl", "fastapi", "uvicorn", "httpx2", "textarena",
    "datasets", "pyarrow", "openskill", "scipy", "math-verify", "pydantic-monty", "wandb", "huggingface-hub", "peft",
    "torch", "verifiers",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """By distribution, its version; None where it is not installed."""
    return {name: version(name) for name in PACKAGES}


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == "legos":
            from legos_envs import __version__

            return f"{__version__} (source tree, not installed)"
        return None


def extras() -> dict[str, dict[str, Any]]:
    """By extra of the package: whether all it brings is installed, what is missing, and the command."""
    try:
        lines = importlib.metadata.requires("legos") or []
    except importlib.metadata.PackageNotFoundError:
        return {"note": {"text": "legos runs from a source tree and is not installed; uv sync installs everything"}}
    report: dict[str, dict[str, Any]] = {}
    for name in sorted({found[1] for line in lines if (found := _EXTRA.search(line))}):
        missing = sorted(p for p in _brought(lines, name) if p != "legos" and version(p) is None)
        report[name] = {"installed": not missing}
        if missing:
            report[name] |= {"missing": missing, "install": f"pip install 'legos[{name}]'"}
    return report


_EXTRA = re.compile(r"extra == ['\"]([\w.-]+)")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w.,\s-]+)\])?")


def _brought(lines: Sequence[str], extra: str) -> set[str]:
    """The distributions that an extra brings on this system; `mlx[cuda13]` brings what mlx's own extra does, too."""
    found: set[str] = set()
    for line in lines:
        requirement, _, marker = line.partition(";")
        wanted = _EXTRA.search(marker)
        named = _REQUIREMENT.match(requirement.strip())
        if not wanted or wanted[1] != extra or not named or not _here(marker):
            continue
        found.add(named[1])
        if version(named[1]) is not None:
            for inner in (named[2] or "").replace(" ", "").split(","):
                found |= _brought(importlib.metadata.requires(named[1]) or [], inner) if inner else set()
    return found


def _here(marker: str) -> bool:
    """Whether what a marker says about the operating system is true of this one."""
    is_it = {"sys_platform": sys.platform, "platform_system": platform.system()}
    found = re.findall(r"(sys_platform|platform_system) == ['\"](\w+)", marker)
    return all(is_it[name] == value for name, value in found)
