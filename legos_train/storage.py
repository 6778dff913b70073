"""Files that survive a crash: atomic writes, the run directory and its lock."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any


class RunError(RuntimeError):
    """The run directory cannot be used as asked; the message says what to do."""


def fsync(path: Path) -> None:
    """Makes a file, or the entries of a directory, durable (macOS needs F_FULLFSYNC for that)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Replaces a file in one step: after a crash it holds the old content or the new, never a part.

    Args:
        write: is given a temporary path in the same directory and writes the content there.
    """
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        write(temporary)
        fsync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replaces a text file in one step."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomic(path, write)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def explain_os_error(error: OSError, doing: str) -> str:
    """What went wrong with a file, in words that say what to do."""
    if error.errno == errno.ENOSPC:
        return (
            f"the disk is full while {doing} ({error.filename}); nothing written before is lost. Free space, --resume"
        )
    return f"{error.strerror or error} while {doing} ({error.filename})"


class RunDirectory:
    """`runs/NAME`, owned by one process at a time.

    Holds `config.toml`, `metrics.jsonl`, `checkpoints/step_N/`, `adapter/`, `last/`, `best/`, `report.html`.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def started(self) -> bool:
        return (self.path / "config.toml").exists()

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def __enter__(self) -> RunDirectory:
        try:
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
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
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
