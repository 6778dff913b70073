"""The run directory: who owns it, its small files, and what an error of the file system means for the user."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from legos_train.disk import fsops
from legos_train.disk.crash import CRASH_POINTS, crashpoint
from legos_train.errors import RunError

__all__ = [
    "CRASH_POINTS",
    "RunDirectory",
    "RunError",
    "crashpoint",
    "explain_os_error",
    "new_run_directory",
    "write_bytes",
    "write_text",
]

_POINTS = {"config.toml": "config", "start.json": "start", "report.html": "report", "result.json": "result"}
_LEFT_BEHIND = re.compile(r"\.tmp-\d+-.+")

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space",
    errno.EDQUOT: "the disk quota is used up; free space",
    errno.EFBIG: "the file is larger than this process may write (ulimit -f); raise the limit",
    errno.EMFILE: "this process has too many open files (ulimit -n); raise the limit",
    errno.ENFILE: "the system has too many open files; close some programs",
    errno.EROFS: "the file system is read-only; choose another --run-dir or remount it",
    errno.EIO: "the disk reported an error (EIO); check it",
}


def write_bytes(path: Path, data: bytes, points: str = "file") -> None:
    """Replaces a file in one step: after a crash it holds the old content or the new, never a part.

    Args:
        points: the crash points passed are `{points}.written` and `{points}.renamed`.

    Raises:
        OSError: it could not be written; the old content stands.
    """
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        fsops.write_file(temporary, data, torn=f"{points}.torn")
        crashpoint(f"{points}.written")
        fsops.rename(temporary, path)
    except BaseException:
        with suppress(OSError):  # not there, or swept when the directory is next opened; the first error says more
            fsops.unlink(temporary)
        raise
    crashpoint(f"{points}.renamed")
    fsops.sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replaces a text file in one step."""
    write_bytes(path, text.encode(), _POINTS.get(path.name, "file"))


def explain_os_error(error: OSError, doing: str) -> str:
    """What went wrong with a file, in words that say what to do."""
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None:
        return f"{error.strerror or error} while {doing} ({error.filename})"
    return f"{remedy}, then go on with --resume: nothing written before is lost (while {doing}: {error.filename})"


class RunDirectory:
    """`runs/NAME`, owned by one process at a time.

    Holds `config.toml`, `metrics.jsonl`, `checkpoints/step_N/`, `adapter/`, `last/`, `best/`, `report.html`.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: IO[str] | None = None
        self._made = False

    @property
    def started(self) -> bool:
        return (self.path / "config.toml").exists()

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def __enter__(self) -> RunDirectory:
        try:
            self._made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")
        except OSError as error:
            raise RunError(f"cannot use the run directory {str(self.path)!r}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise RunError(
                f"the run directory {str(self.path)!r} is in use by another process; "
                "wait for it or give another --run-dir"
            ) from None
        crashpoint("run.locked")
        try:
            self._sweep()
        except OSError:
            self._lock.close()
            raise
        return self

    def _sweep(self) -> None:
        """Removes what a killed process left half written; no other process can be writing now."""
        for name in fsops.names(self.path):
            if _LEFT_BEHIND.fullmatch(name) and (self.path / name).is_file():
                fsops.unlink(self.path / name)
        crashpoint("run.swept")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None and self._made:
            with suppress(OSError):  # a run that never began leaves nothing behind; the first error says more
                if fsops.names(self.path) == [".lock"]:
                    fsops.unlink(self.path / ".lock")
                    self.path.rmdir()
        if self._lock is not None:
            self._lock.close()

    def write_json(self, name: str, value: Any) -> None:
        write_text(self.path / name, json.dumps(value, indent=2) + "\n")


def new_run_directory(root: Path, env: str, model: str, seed: int) -> Path:
    """The first free of `root/ENV--MODEL--seedN`, `...-2`, `...-3`."""
    words = [re.sub(r"[^A-Za-z0-9.]+", "_", Path(name).name or name).strip("_").lower() for name in (env, model)]
    stem = f"{words[0]}--{words[1]}--seed{seed}"
    path, count = root / stem, 1
    while path.exists():
        count += 1
        path = root / f"{stem}-{count}"
    return path
