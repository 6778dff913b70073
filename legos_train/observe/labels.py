"""Names for directories that are shown together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def labels_of(dirs: Sequence[Path]) -> list[str]:
    """The shortest distinct names of directories."""
    parts = [Path(path).resolve().parts for path in dirs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-1:])} ({k})" for k, part in enumerate(parts, 1)]
