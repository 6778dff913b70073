"""The folder that an export writes into."""

from __future__ import annotations

from pathlib import Path

from legos_train.errors import ExportError


def fresh_folder(out: Path, *, overwrite: bool = False) -> Path:
    """Makes the folder that an export writes into.

    Raises:
        ExportError: there is something in it already, and `overwrite` is off.
        OSError: it cannot be made.
    """
    if out.exists() and not out.is_dir():
        raise ExportError(f"{str(out)!r} is a file; give a folder")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ExportError(f"{str(out)!r} is not empty; give another folder, or --overwrite to replace files in it")
    out.mkdir(parents=True, exist_ok=True)
    return out
