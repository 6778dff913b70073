"""The directory of checkpoints: what is in it, clearing up after a killed writer, and taking old ones away.

step_40/              a checkpoint
step_40.corrupt/      one that was broken when it was needed; kept for whoever wants to look
step_40.kept/         what somebody else put into a checkpoint that was pruned
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


class Damaged(Exception):
    """A checkpoint is not what its manifest says; the message says where."""


def steps(root: Path) -> list[int]:
    """The steps with a checkpoint, whole or not, in order."""
    return sorted(int(found[1]) for name in fsops.names(root) if (found := _STEP.fullmatch(name)))


def sweep(root: Path) -> None:
    """Finishes or undoes what a killed process had begun. Nobody else may be writing."""
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
    """Takes away all but the newest `keep` checkpoints (at least one), and what the new step `newest` replaced.

    Incomplete ones do not count and stay. A failure is reported and no more: the new checkpoint is safe, and the next
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
    """Whether all files are there in the right size; contents are checked when a checkpoint is read."""
    files = _listed(directory)
    return bool(files) and all((directory / name).is_file() for name in files)


def _listed(directory: Path) -> list[str]:
    """The files that belong to a checkpoint, the manifest last; empty when that cannot be known."""
    try:
        listed = json.loads(fsops.read_file(directory / MANIFEST))["files"]
        return [*(str(name) for name in listed if os.sep not in name), MANIFEST]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return []


def _remove_checkpoint(directory: Path, original: Path) -> None:
    """Removes the files of a checkpoint; files that are not its own stay, under `ORIGINAL.kept`. Of a link only the
    link goes.
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
