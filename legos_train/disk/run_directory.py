"""The run directory: who owns it, its small files, and what an error of the file system means for the user."""

from __future__ import annotations

import fcntl
import json
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from legos_train.disk import fsops
from legos_train.disk.crash import crashpoint
from legos_train.errors import RunError

_LEFT_BEHIND = re.compile(r"\.tmp-\d+-.+")


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
        fsops.write_text(self.path / name, json.dumps(value, indent=2) + "\n")


def new_run_directory(root: Path, env: str, model: str, seed: int) -> Path:
    """The first free of `root/ENV--MODEL--seedN`, `...-2`, `...-3`."""
    words = [re.sub(r"[^A-Za-z0-9.]+", "_", Path(name).name or name).strip("_").lower() for name in (env, model)]
    stem = f"{words[0]}--{words[1]}--seed{seed}"
    path, count = root / stem, 1
    while path.exists():
        count += 1
        path = root / f"{stem}-{count}"
    return path
