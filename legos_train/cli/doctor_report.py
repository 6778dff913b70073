"""A report on this installation, for users and bug reports. No section can break the others or reveal a secret.

Sections are built separately; one that raises is replaced by its error. Environment variables whose names look like
secrets are never read, passwords are removed from addresses, and the home directory is written `~`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from legos_envs.arguments import install, install_package
from legos_train import errors
from legos_train.cli.doctor_environment import environment, extras, tidy, untested, version, versions
from legos_train.cli.doctor_storage import caches, disk, memory

PORTS = range(8000, 8010)
"""`legos serve` listens on 8000 by default; users count up from there."""
LITTLE_MEMORY, LITTLE_DISK = 2.0, 2.0
"""GiB below which training the bundled model, or storing the files of one small model, may fail."""


def examine() -> dict[str, Any]:
    """All sections as plain JSON values, and `advice`. A section that failed is `{"error": what happened}`."""
    sections: dict[str, Callable[[], Any]] = {
        "system": system,
        "versions": versions,
        "packages": packages,
        "device": device,
        "blas": blas,
        "memory": memory,
        "disk": disk,
        "ports": ports,
        "caches": caches,
        "extras": extras,
        "sandbox": sandbox,
        "environment": lambda: environment(os.environ),
    }
    report: dict[str, Any] = {}
    for name, make in sections.items():
        try:
            report[name] = tidy(make())
        except Exception as error:  # this is for broken installations
            report[name] = {"error": tidy(f"{type(error).__name__}: {error}")}
    report["advice"] = advice(report)
    return report


def advice(report: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that is missing or slow, with the command that fixes it."""
    sentences = []
    device, blas, memory = (report.get(name) or {} for name in ("device", "blas", "memory"))
    if "install" in device:
        sentences.append(
            f"Models cannot run here yet: {device['install']}. Environments, endpoints and `play` work without it."
        )
    mlx = blas.get("mlx") or {}
    if device.get("default") == "cpu" and mlx and not mlx.get("fast"):
        sentences.append(f"Matrix products are slow: {mlx.get('advice')}.")
    available = min(
        (memory[name] for name in ("available", "container_limit", "process_limit") if name in memory), default=None
    )
    if available is not None and available < LITTLE_MEMORY:
        sentences.append(
            f"Only {available} GiB of memory is free; training the bundled model takes up to {LITTLE_MEMORY:g}."
        )
    for name, place in (report.get("disk") or {}).items():
        if isinstance(place, Mapping) and not place["writable"]:
            sentences.append(f"{place['path']} ({name}) is not writable.")
        elif isinstance(place, Mapping) and place["free"] < LITTLE_DISK:
            sentences.append(f"Only {place['free']} GiB is free in {place['path']} ({name}).")
    sentences += [
        f"The model served on port {port} runs row by row: no batching, no prefix cache. The server's log says why."
        for port, answer in (report.get("ports") or {}).items()
        if str(answer).endswith("row by row")
    ]
    if others := (report.get("packages") or {}).get("other_inference"):
        sentences.append(
            f"{', '.join(others)} also installs a package named `inference`, over this project's: only one of them can "
            "work. Use a separate virtual environment for each (docs/installing.md)."
        )
    sentences += [
        f"Legos is not tested with {name} {found['version']}, and parts of it may fail silently; run "
        + install_package(f"'{name}{found['needed']}'")
        for name, found in ((report.get("packages") or {}).get("untested") or {}).items()
    ]
    sentences += [f"The section {name} failed: {r['error']}" for name, r in report.items() if _failed(r)]
    return sentences


def _failed(section: Any) -> bool:
    return isinstance(section, Mapping) and set(section) == {"error"}


def system() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def packages() -> dict[str, Any]:
    """Where this project's packages are, other packages with the same name, and versions that are not tested."""
    places = {name: importlib.util.find_spec(name) for name in ("legos_envs", "inference", "legos_train")}
    facts: dict[str, Any] = {name: str(spec and spec.origin) for name, spec in places.items()}
    more = {"other_inference": errors.other_inferences(), "untested": untested()}
    return facts | {name: found for name, found in more.items() if found}


def device() -> dict[str, Any]:
    if importlib.util.find_spec("mlx") is None:
        return {"mlx": "not installed", "install": install("train")}
    import mlx.core as mx

    kind = mx.default_device()
    facts: dict[str, Any] = {
        "default": "gpu" if kind.type == mx.DeviceType.gpu else "cpu",
        "metal": mx.metal.is_available(),
    }
    if kind.type == mx.DeviceType.gpu:
        facts["info"] = {key: value for key, value in mx.device_info().items() if isinstance(value, str | int)}
    return facts


def blas() -> dict[str, Any]:
    """The library that runs MLX's matrix products, and every BLAS in the process with its threads."""
    import numpy

    facts: dict[str, Any] = {"numpy": _numpy_blas(numpy)}
    if importlib.util.find_spec("mlx") is not None and importlib.util.find_spec("threadpoolctl") is not None:
        import warnings

        from inference.forward import fastblas

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the status says the same
            status = fastblas.enable()
        facts["mlx"] = {"state": status.state, "library": status.library, "fast": status.fast, "tried": status.tried}
        if not status.fast:
            command = install_package("scipy-openblas32")
            facts["mlx"]["advice"] = f"{command}, and unset LEGOS_BLAS, for 15 to 30 times the speed"
    if importlib.util.find_spec("threadpoolctl") is not None:
        import threadpoolctl

        pools = threadpoolctl.threadpool_info()
        facts["pools"] = [{k: p.get(k) for k in ("internal_api", "version", "num_threads", "filepath")} for p in pools]
    return facts


def _numpy_blas(numpy: Any) -> str:
    config = numpy.show_config(mode="dicts") or {}
    built = config.get("Build Dependencies", {}).get("blas", {})
    return f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()


def ports() -> dict[str, str]:
    """The ports of this machine in use: `legos serve` with how it runs its model, or another program."""
    return {str(port): answer for port in PORTS if (answer := _listening(port)) is not None}


def _listening(port: int) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        if probe.connect_ex(("127.0.0.1", port)):
            return None
    reply = _answer(port, "/ready")
    if not isinstance(reply, dict) or set(reply) != {"ready"}:
        return "another program"
    if not reply["ready"]:
        return "legos serve, not ready"
    health = _answer(port, "/health")
    path = health.get("path") if isinstance(health, dict) else None
    return f"legos serve, ready, {path}" if isinstance(path, str) else "legos serve, ready"


def _answer(port: int, route: str) -> Any:
    """The response at that port and route if it is JSON, else None."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{route}", timeout=1) as answer:
            text = answer.read(200)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(200)
    except (OSError, ValueError):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def sandbox() -> dict[str, Any]:
    """The sandboxes available for code that a model wrote."""
    from legos_envs.scoring import sandbox as code_sandbox

    monty = version("pydantic-monty")
    tool = code_sandbox.available()
    return {
        "monty": monty or f"not installed: {install('tasks')}",
        "os": tool or "none: apt install bubblewrap on Linux; macOS has sandbox-exec",
    }
