"""The directory of checkpoints: its contents, cleanup after a killed writer, and removal of old ones.

step_40/              a checkpoint
step_40.corrupt/      one that was broken when needed; kept for inspection
step_40.kept/         foreign files from a pruned checkpoint
.tmp-step_40-PID/     being written            -> removed when found later
.old-step_40-PID/     making room for a new 40 -> put back if there is no new one, else removed
.gone-step_40-PID/    being removed            -> removed
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from legos_train.disk import fsops
from legos_train.disk.crash import crashpoint

MANIFEST = "manifest.json"
_STEP = re.compile(r"step_(0|[1-9]\d*)")
_LEFT_BEHIND = re.compile(r"\.(tmp|old|gone)-(step_\d+)-\d+")


class CorruptCheckpoint(Exception):
    """A checkpoint does not match its manifest; the message says where."""


def steps(root: Path) -> list[int]:
    """The steps with a checkpoint, complete or not, in order."""
    return sorted(int(found[1]) for name in fsops.names(root) if (found := _STEP.fullmatch(name)))


def sweep(root: Path) -> None:
    """Finishes or undoes the work of a killed process. Nothing else may be writing."""
    for name in fsops.names(root):
        if not (found := _LEFT_BEHIND.fullmatch(name)):
            continue
        kind, step = found.groups()
        if kind == "old" and not os.path.lexists(root / step):
            fsops.rename(root / name, root / step)
            crashpoint("sweep.restored")
        elif kind == "tmp":
            fsops.remove_own(root / name)
            crashpoint("sweep.removed")
        else:
            _remove_checkpoint(root / name, root / step)
            crashpoint("sweep.removed")


def prune(root: Path, keep: int, newest: int) -> None:
    """Removes all but the latest `keep` checkpoints (at least one), and what the new step `newest` replaced.

    Incomplete ones do not count and stay. A failure is only reported: the new checkpoint is safe, and the next
    prune tries again.
    """
    crashpoint("prune.begun")
    try:
        for name in fsops.names(root):  # only now: what a replaced checkpoint left
            if name.startswith(f".old-step_{newest}-"):
                _remove_checkpoint(root / name, root / f"step_{newest}")
        whole = [step for step in steps(root) if _complete(root / f"step_{step}")]
        for step in whole[: -max(keep, 1)]:
            gone = root / f".gone-step_{step}-{os.getpid()}"
            fsops.rename(root / f"step_{step}", gone)
            crashpoint("prune.renamed")
            _remove_checkpoint(gone, root / f"step_{step}")
            crashpoint("prune.removed")
    except OSError as error:
        print(f"an old checkpoint could not be removed ({error}); the run continues", file=sys.stderr)


def _complete(directory: Path) -> bool:
    """Whether all files exist with the right size; contents are checked when a checkpoint is read."""
    files = _listed(directory)
    return bool(files) and all((directory / name).is_file() for name in files)


def _listed(directory: Path) -> list[str]:
    """The files that belong to a checkpoint, the manifest last; empty if that cannot be determined."""
    try:
        listed = json.loads(fsops.read_file(directory / MANIFEST))["files"]
        return [*(str(name) for name in listed if os.sep not in name), MANIFEST]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return []


def _remove_checkpoint(directory: Path, original: Path) -> None:
    """Removes the files of a checkpoint; foreign files stay, under `ORIGINAL.kept`. For a link, only the link is
    removed.
    """
    if directory.is_symlink():
        fsops.unlink(directory)
        return
    own = _listed(directory)
    present = set(fsops.names(directory))
    for name in own:
        if name in present:
            fsops.unlink(directory / name)
            crashpoint("prune.file_removed")
    if present - set(own):
        fsops.rename(directory, fsops.free(original.with_name(original.name + ".kept")))
    else:
        fsops.remove_directory(directory)


def set_aside(directory: Path, aside: Path) -> None:
    fsops.rename(directory, aside)
    crashpoint("load.set_aside")
