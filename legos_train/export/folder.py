"""The output folder of an export."""

from __future__ import annotations

from pathlib import Path

from legos_train.errors import ExportError


def fresh_folder(out: Path, *, overwrite: bool = False) -> Path:
    """Creates the output folder of an export.

    Raises:
        ExportError: it is not empty, and `overwrite` is off.
        OSError: it cannot be created.
    """
    if out.exists() and not out.is_dir():
        raise ExportError(f"{str(out)!r} is a file; give a folder")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ExportError(f"{str(out)!r} is not empty; give another folder, or --overwrite to replace files in it")
    out.mkdir(parents=True, exist_ok=True)
    return out
