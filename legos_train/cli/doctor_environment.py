"""Installed packages, missing extras, and environment variables without secrets. Standard library only."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from inference.address import OWN_KEY, hide_secrets
from legos_envs.arguments import DISTRIBUTION, install

PACKAGES = (
    DISTRIBUTION, "numpy", "pettingzoo", "gymnasium", "pydantic", "rich", "mlx", "mlx-lm", "transformers",
    "tokenizers", "safetensors", "scipy-openblas32", "threadpoolctl", "fastapi", "uvicorn", "httpx2", "textarena",
    "datasets", "pyarrow", "openskill", "scipy", "math-verify", "pydantic-monty", "wandb", "huggingface-hub", "peft",
    "torch", "verifiers", "lazy-loader", "tomli-w", "llguidance", "prometheus-client", "resvg-py", "tinker",
)  # fmt: skip

PREFIXES = (
    "LEGOS_", "HF_", "HUGGINGFACE", "TRANSFORMERS_", "MLX_", "OPENBLAS_", "OMP_", "MKL_", "VECLIB_", "CUDA_", "WANDB_",
    "TRACKIO_", "OPENAI_", "OPENROUTER_", "PYTHON", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_", "VIRTUAL_ENV", "CONDA_PREFIX",
)  # fmt: skip
ALWAYS = ("HF_TOKEN", OWN_KEY, "OPENAI_API_KEY", "OPENROUTER_API_KEY", "WANDB_API_KEY")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|PWD", re.IGNORECASE)


def versions() -> dict[str, str | None]:
    """The version of each distribution; None if it is not installed."""
    return {name: version(name) for name in PACKAGES}


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == DISTRIBUTION:
            from legos_envs import __version__

            return f"{__version__} (source tree, not installed)"
        return None


def extras() -> dict[str, dict[str, Any]]:
    """For each extra of the package: whether it is fully installed, what is missing, and the command to install it."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {"note": {"text": "this source tree is not installed; uv sync installs everything"}}
    report: dict[str, dict[str, Any]] = {}
    for name in sorted({match[1] for line in lines if (match := _EXTRA.search(line))}):
        missing = sorted(p for p in _brought(lines, name) if p != DISTRIBUTION and version(p) is None)
        report[name] = {"installed": not missing}
        if missing:
            report[name] |= {"missing": missing, "install": install(name)}
    return report


def untested() -> dict[str, dict[str, str]]:
    """Installed packages whose versions are outside the bounds that this package declares; pip only warns about them.

    By name, as it is to be installed: with those of its extras that are installed. Includes packages that only one of
    our own extras requires.
    """
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        named = _REQUIREMENT.match(requirement.strip())
        if named is None or not _here(marker) or (here := version(named[1])) is None:
            continue
        if named[2] and not _has(named[1], named[2]):
            continue
        bounds = re.findall(r"(>=|<)\s*(\d[\d.]*)", requirement)
        if not all((_numbers(here) < _numbers(bound)) == (sign == "<") for sign, bound in bounds):
            found[named[0]] = {"version": here, "needed": ",".join(sign + bound for sign, bound in bounds)}
    return found


def _has(name: str, inner: str) -> bool:
    """Whether the packages that an extra of a package brings are installed."""
    brought = _brought(importlib.metadata.requires(name) or [], inner)
    return all(version(one) is not None for one in brought)


def _numbers(text: str) -> list[int]:
    """`1.10.2rc1` as [1, 10, 2]; zeros at the end do not count."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", text)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


_EXTRA = re.compile(r"extra == ['\"]([\w.-]+)")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w.,\s-]+)\])?")


def _brought(lines: Sequence[str], extra: str) -> set[str]:
    """The distributions that an extra requires on this system, including nested extras such as `mlx[cuda13]`."""
    names: set[str] = set()
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra_match = _EXTRA.search(marker)
        named = _REQUIREMENT.match(requirement.strip())
        if not extra_match or extra_match[1] != extra or not named or not _here(marker):
            continue
        names.add(named[1])
        if version(named[1]) is not None:
            for inner in (named[2] or "").replace(" ", "").split(","):
                names |= _brought(importlib.metadata.requires(named[1]) or [], inner) if inner else set()
    return names


def _here(marker: str) -> bool:
    """Whether a marker's conditions on the operating system hold here."""
    is_it = {"sys_platform": sys.platform, "platform_system": platform.system()}
    pairs = re.findall(r"(sys_platform|platform_system) == ['\"](\w+)", marker)
    return all(is_it[name] == value for name, value in pairs)


def tidy(value: Any) -> Any:
    """The value with likely secrets hidden and the home directory shortened."""
    if isinstance(value, Mapping):
        return {key: tidy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(inner) for inner in value]
    if not isinstance(value, str):
        return value
    value = hide_secrets(value)
    home = os.path.expanduser("~")
    return re.sub(re.escape(home) + r"(?=/|:|$)", "~", value) if len(home) > 1 else value


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The relevant variables; those whose names look like secrets only as "set" or "not set"."""
    shown = {}
    for name in sorted({*variables, *ALWAYS}):
        if name in ALWAYS or (name.startswith(PREFIXES) and SECRET.search(name)):
            shown[name] = "set (hidden)" if variables.get(name) else "not set"
        elif name.startswith(PREFIXES):
            shown[name] = variables[name]
    return shown
