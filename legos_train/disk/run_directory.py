"""The run directory: its owner, its run, and its small files."""

from __future__ import annotations

import difflib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from legos_train.disk import fsops
from legos_train.disk.crash import crashpoint
from legos_train.disk.metrics_file import MetricsFile
from legos_train.errors import RunError

IDENTITY, CONFIG, START = "run.json", "config.toml", "start.json"
_LEFT_BEHIND = re.compile(r"\.tmp-\d+-.+")
_OF_A_RUN = ("checkpoints", "metrics.jsonl", "rollouts.jsonl", START, "result.json")
_REMEDIES = {
    IDENTITY: "The manifests of the run's checkpoints and the rows of its metrics.jsonl have the id as `run`",
    START: "Remove it: --resume continues without the evaluation before the first step",
    "result.json": "Remove it: --resume then writes it again from the last checkpoint",
}
_ID = re.compile(r"[0-9a-f]{12}")


def new_run_id() -> str:
    """A unique id of twelve hexadecimal digits, used in a run's manifests, metrics and adapters."""
    return secrets.token_hex(6)


class RunDirectory:
    """`runs/NAME`, owned by one process at a time.

    Holds `run.json`, `config.toml`, `metrics.jsonl`, `checkpoints/step_N/`, `adapter/`, `last/`, `best/`,
    `report.html`.

    Args:
        path: the directory.
        run_id: id of a run whose directory is on another rank.

    Attributes:
        id: the id of the run, once the directory is entered: that of `run.json`, or a new one.
    """

    def __init__(self, path: Path, run_id: str | None = None):
        self.path = path
        self.id = run_id or new_run_id()
        self._lock: IO[str] | None = None
        self._made: list[Path] = []

    @staticmethod
    def new_id() -> str:
        """An id for a run without a directory."""
        return new_run_id()

    @property
    def started(self) -> bool:
        return (self.path / CONFIG).exists()

    @property
    def left(self) -> list[str]:
        """The files of a run found here, besides config.toml."""
        return [name for name in _OF_A_RUN if (self.path / name).exists()]

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def check_resumable(self) -> None:
        """Checks that there is a run to resume.

        Raises:
            RunError: there is none; the message names the nearest directory that has one.
        """
        if self.started:
            return
        if left := self.left:
            raise RunError(f"cannot resume {str(self.path)!r}: it has {left[0]} but no {CONFIG}; put that back")
        roots = {self.path.parent, Path("runs")}
        runs = [str(found.parent) for root in sorted(roots) for found in root.glob(f"*/{CONFIG}")]
        near = difflib.get_close_matches(str(self.path), runs, 1, cutoff=0.0)
        hint = f"the nearest is --run-dir {near[0]}" if near else f"and {str(self.path.parent)!r} has none either"
        raise RunError(f"cannot resume {str(self.path)!r}: it has no run; {hint}. Without --resume a new run starts")

    def __enter__(self) -> RunDirectory:
        try:
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")
        except OSError as error:
            raise RunError(f"cannot use the run directory {str(self.path)!r}: {error.strerror}") from error
        try:
            fsops.lock(self._lock)
        except BlockingIOError:
            self._lock.close()
            raise RunError(
                f"the run directory {str(self.path)!r} is in use by another process; "
                "wait for it or give another --run-dir"
            ) from None
        try:
            crashpoint("run.locked")
            self._sweep()
            if (self.path / IDENTITY).exists():
                self.id = self._read_id()
            elif len(ids := self._ids()) == 1:
                (self.id,) = ids
            elif ids:
                raise RunError(
                    f"{str(self.path)!r} has no {IDENTITY}, and files of the runs {sorted(ids)}. "
                    f"Restore the right run's {IDENTITY}, " + '{"id": "..."}'
                )
        except BaseException:  # Ctrl-C, too: in a notebook the process goes on, and the next run needs the lock
            self._lock.close()
            raise
        return self

    def _sweep(self) -> None:
        """Removes half-written files of a killed process; no other process can be writing now."""
        for name in fsops.names(self.path):
            if _LEFT_BEHIND.fullmatch(name) and (self.path / name).is_file():
                fsops.unlink(self.path / name)
        crashpoint("run.swept")

    def _read_id(self) -> str:
        found = self.read_json(IDENTITY).get("id")
        if not isinstance(found, str) or not _ID.fullmatch(found):
            raise RunError(
                f"{str(self.path / IDENTITY)!r} must give the run's id, twelve hexadecimal digits; got {found!r}. "
                f"{_REMEDIES[IDENTITY]}"
            )
        return found

    def _ids(self) -> set[str]:
        """The ids in the files that a run left here."""
        rows = MetricsFile.read(self.path / "metrics.jsonl")
        for manifest in (self.path / "checkpoints").glob("step_*/manifest.json"):
            with suppress(OSError, ValueError, RecursionError):
                rows.append(json.loads(manifest.read_text(encoding="utf-8")))
        named = {str(row.get("run")) for row in rows if isinstance(row, dict)}
        return {one for one in named if _ID.fullmatch(one)}

    def begin(self, config: str, facts: Mapping[str, str] | None = None) -> None:
        """Marks the directory as a run with the settings `config`; `facts` are stored with its id."""
        if not (self.path / IDENTITY).exists():
            self.write_json(IDENTITY, {"id": self.id, **(facts or {})})
        fsops.write_text(self.path / CONFIG, config)

    def withdraw(self) -> None:
        """Undoes `begin` for a run that failed before its first step, so that the directory can be reused."""
        for name in (*_OF_A_RUN, IDENTITY, CONFIG):
            if (file := self.path / name).is_file():
                fsops.unlink(file)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        unused = False  # a run that never started leaves nothing; the first error says more
        with suppress(OSError):
            if error is not None and self._made and fsops.names(self.path) == [".lock"]:
                fsops.unlink(self.path / ".lock")
                unused = True
        if self._lock is not None:
            self._lock.close()
        with suppress(OSError):
            for folder in self._made if unused else ():  # including `runs` if created for this run, otherwise unused
                folder.rmdir()  # after closing: over NFS and FUSE a file that is open is still there, by another name

    def read_json(self, name: str) -> dict[str, Any]:
        """One of the directory's small files.

        Raises:
            RunError: it is not a JSON object.
        """
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError(f"it holds a {type(found).__name__}, not an object")
        except (ValueError, RecursionError) as error:
            raise RunError(f"{str(self.path / name)!r} cannot be read: {error}. {_REMEDIES[name]}") from None
        return found

    def first_numbers(self) -> dict[str, float] | None:
        """`start.json`: the evaluation before the first step; None if there is none yet.

        Raises:
            RunError: it has other contents.
        """
        if not (self.path / START).exists():
            return None
        kept = self.read_json(START)
        if wrong := {name: value for name, value in kept.items() if not isinstance(value, int | float)}:
            raise RunError(f"{str(self.path / START)!r} must hold numbers, got {wrong}. {_REMEDIES[START]}")
        return kept

    def write_json(self, name: str, value: Any) -> None:
        fsops.write_text(self.path / name, json.dumps(value, indent=2) + "\n")


def new_run_directory(root: Path, env: str, model: str, seed: int) -> Path:
    """The first free name among `root/ENV--MODEL--seedN`, `...-2`, `...-3`."""
    words = [re.sub(r"[^A-Za-z0-9.]+", "_", Path(name).name or name).strip("_").lower() for name in (env, model)]
    stem = f"{words[0]}--{words[1]}--seed{seed}"
    path, count = root / stem, 1
    while path.exists():
        count += 1
        path = root / f"{stem}-{count}"
    return path
