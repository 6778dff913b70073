"""Results of forward-pass comparisons, kept for the next process that loads the same model on this machine.

A comparison costs passes over the weights. Its answer depends on the model's classes, arguments, shapes and types, on
this code, on the versions of MLX, mlx-lm and numpy, on the matrix library and on the processor; their hash names a file
in the user's cache directory. Only agreement is kept. A process that relies on it still makes one small comparison, and
discards results that no longer hold; a torn, foreign or unreadable file counts as missing.

`LEGOS_CACHE` replaces the directory `~/.cache/legos`; `off` keeps nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from inference.forward import fastblas

_FILES = 256
_MOST_BYTES = 4096
_CODE = ("forward", "adapters", "recurrence")


class Verdicts:
    """The comparisons of a model that agreed, by name.

    Args:
        model: the model under comparison.
    """

    def __init__(self, model: nn.Module) -> None:
        self._file: Path | None = None
        self._key, self._agreed = "", frozenset[str]()
        self.relied = False
        if (folder := _folder()) is not None:
            self._key = _identity(model)
            self._file = folder / f"{self._key}.json"
            self._agreed = _read(self._file, self._key)

    def agrees(self, name: str, compare: Callable[[], bool]) -> bool:
        """Whether a comparison agreed before, or agrees now."""
        if name in self._agreed:
            self.relied = True
            return True
        if not compare():
            return False
        self._agreed |= {name}
        return True

    def forget(self) -> None:
        """Discards kept results that do not hold."""
        self._agreed, self.relied = frozenset(), False

    def keep(self) -> None:
        """Saves the comparisons that agreed; does nothing if the directory is not writable."""
        if self._file is None or self.relied or not self._agreed:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            others = sorted(self._file.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for old in others[: max(len(others) - _FILES, 0)]:
                old.unlink(missing_ok=True)
            handle, draft = tempfile.mkstemp(dir=self._file.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump({"model": self._key, "agreed": sorted(self._agreed)}, stream)
            os.replace(draft, self._file)


def _folder() -> Path | None:
    chosen = os.environ.get("LEGOS_CACHE", "")
    if chosen in ("0", "off"):
        return None
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with contextlib.suppress(RuntimeError):  # no home
        return Path(chosen or os.path.join(caches, "legos")).expanduser() / "forward"
    return None


def _read(file: Path, key: str) -> frozenset[str]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return frozenset()
        content = json.loads(file.read_bytes())
        if content["model"] == key and all(isinstance(name, str) for name in content["agreed"]):
            return frozenset(content["agreed"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return frozenset()


def _identity(model: nn.Module) -> str:
    """A hash of everything a comparison depends on, including a few numbers from every weight."""
    digest = hashlib.sha256(_surroundings())
    digest.update(built(model).encode())
    digest.update(repr(getattr(model, "args", None)).encode())
    few = [array.reshape(-1)[:8].astype(mx.float32) for _, array in _arrays(model) if array.size]
    digest.update(np.asarray(mx.concatenate(few)).tobytes())
    return digest.hexdigest()[:40]


def _arrays(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return [(name, array) for name, array in flat if isinstance(array, mx.array)]


def built(module: nn.Module) -> str:
    """A module's structure: classes, plain attributes, names and shapes of parameters."""
    parts = []
    for name, part in module.named_modules():
        plain = {key: value for key, value in vars(part).items() if isinstance(value, bool | int | float | str | tuple)}
        arrays = {key: (value.shape, value.dtype) for key, value in part.items() if isinstance(value, mx.array)}
        parts.append((name, type(part), sorted(plain.items()), sorted(arrays.items(), key=lambda item: item[0])))
    return repr(parts)


@functools.cache
def _surroundings() -> bytes:
    """This code and its environment."""
    here = Path(__file__).parents[1]
    code = hashlib.sha256()
    for file in sorted(file for room in _CODE for file in (here / room).glob("*.py")):
        code.update(file.read_bytes())
    blas: Any = fastblas.enable()
    about = [
        code.hexdigest(),
        [version(name) for name in ("mlx", "mlx-lm", "numpy")],
        [platform.python_version(), platform.machine(), platform.node(), _processor()],
        [str(mx.default_device()), blas.state, blas.library, os.environ.get("OPENBLAS_CORETYPE")],
    ]
    return json.dumps(about).encode()


def _processor() -> str:
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0].splitlines()
        return "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    return platform.processor()
