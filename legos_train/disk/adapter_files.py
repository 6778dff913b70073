"""An adapter on disk in mlx-lm's layout: `adapters.safetensors` and `adapter_config.json`, which change together.

Readers of the folder, such as mlx-lm or a server, see the old pair or the new one. The pair is written next to the
folder and moved into place by one rename; if there is an old one the two are exchanged atomically, as Linux and macOS
support. On other file systems, a crash between two renames leaves the old pair next to the folder, and the next save
restores it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from inference.files import tensors
from inference.files.adapter_folder import CONFIG, WEIGHTS
from legos_train.disk import fsops
from legos_train.disk.crash import crashpoint


def save_adapter(folder: str | os.PathLike[str], weights: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Writes an adapter that `mlx_lm.load(base, adapter_path=folder)` reads.

    Args:
        folder: created if missing.
        weights: LoRA matrices by mlx-lm's names.
        config: the content of `adapter_config.json`, plain JSON values.

    Raises:
        OSError: writing failed; the folder holds the previous adapter, or the new one if only
            the last sync or the removal of the old one failed.
        ValueError, TypeError: the values cannot be written; nothing has changed.
    """
    folder = Path(folder)
    data = {
        WEIGHTS: tensors.to_bytes(weights, {"format": "mlx"}),
        CONFIG: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
    }
    fsops.make_directory(folder.parent)
    _sweep(folder)
    crashpoint("adapter.begun")
    if folder.exists() and all(_same(folder / name, content) for name, content in data.items()):
        return
    new = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    try:
        fsops.make_directory(new)
        fsops.write_file(new / WEIGHTS, data[WEIGHTS], torn="adapter.torn")
        crashpoint("adapter.weights_written")
        fsops.write_file(new / CONFIG, data[CONFIG], torn="adapter.torn")
        crashpoint("adapter.config_written")
        fsops.sync_directory(new)
        crashpoint("adapter.directory_synced")
        old = _put(new, folder)
    except BaseException:
        with suppress(OSError):  # removed by the next save; the first error is more informative
            _discard(new, folder)
        raise
    fsops.sync_directory(folder.parent)
    crashpoint("adapter.replaced")
    if old is not None:
        _discard(old, folder)
    crashpoint("adapter.saved")


def _put(new: Path, folder: Path) -> Path | None:
    """Moves `new` to the folder; returns where the old one is now, None if there was none."""
    if not os.path.lexists(folder):
        fsops.rename(new, folder)
        crashpoint("adapter.renamed")
        return None
    if fsops.exchange(new, folder):
        crashpoint("adapter.swapped")
        return new
    old = folder.with_name(f".old-{folder.name}-{os.getpid()}")
    fsops.put_in_place(new, folder, old, "adapter.old_moved")
    return old


def _same(file: Path, content: bytes) -> bool:
    return file.is_file() and fsops.read_file(file) == content


def _discard(directory: Path, folder: Path) -> None:
    """Removes a pair that is not the folder's; files that are not ours move into the folder, where they belong. For a
    link to a pair elsewhere, only the link is removed.
    """
    if directory.is_symlink():
        fsops.unlink(directory)
        return
    for name in fsops.names(directory):
        if name in (WEIGHTS, CONFIG):
            fsops.unlink(directory / name)
        elif not (folder / name).exists():
            fsops.rename(directory / name, folder / name)
    fsops.remove_directory(directory)


def _sweep(folder: Path) -> None:
    """Finishes or undoes the work of a killed process."""
    pattern = re.compile(rf"\.(tmp|old)-{re.escape(folder.name)}-\d+")
    for name in fsops.names(folder.parent):
        if not (found := pattern.fullmatch(name)):
            continue
        left = folder.with_name(name)
        if found[1] == "old" and not os.path.lexists(folder):
            fsops.rename(left, folder)
        else:
            _discard(left, folder)
        print(f"removed {left}, left by a process that was killed", file=sys.stderr)
