"""The finished games of an evaluation, in memory and, if a folder is given, in its `rollouts.jsonl`.

One line per game: what `legos view` shows, and under `game` what the evaluation counts. Lines are written immediately,
so a crash loses only the game being written; a torn last line is ignored, and the next one starts on a new line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from legos_envs.records import Episode
from legos_train.disk import fsops
from legos_train.evaluation.games import Record
from legos_train.observe.viewer import LOG, rollout_line


class JournalError(ValueError):
    """The folder cannot be used; the message says why."""


class Journal:
    """Keeps records by key; those of an earlier, interrupted evaluation in the same folder are loaded at once.

    Args:
        folder: where to keep them; None: only in memory.

    Attributes:
        unreadable: number of lines without a finished game, including torn ones.

    Raises:
        JournalError: another process writes there, the folder is a training run's, or it cannot be created.
    """

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.records: dict[str, Record] = {}
        self.unreadable = 0
        self._file: IO[bytes] | None = None
        if folder is None:
            return
        if (folder / "config.toml").exists():  # the report would mistake these games for those of the last step
            raise JournalError(f"{str(folder)!r} is a training run with its own episodes; give another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / LOG).open("ab+")
        except OSError as error:
            raise JournalError(f"cannot keep games in {str(folder)!r}: {error.strerror}") from error
        try:
            fsops.lock(self._file)
        except BlockingIOError:
            self._file.close()
            raise JournalError(f"{str(folder)!r} is being written by another process; give another --out") from None
        self._read(self._file)

    def _read(self, file: IO[bytes]) -> None:
        file.seek(0)
        whole = True
        for line in file:
            whole = line.endswith(b"\n")
            record = _record(line) if whole else None
            if record is None:
                self.unreadable += 1
            else:
                self.records[record["key"]] = record
        if not whole:
            file.write(b"\n")
            file.flush()

    def add(self, record: Record, line: Callable[[], Mapping[str, Any]]) -> None:
        """Keeps a finished game; `line` creates its line for the viewer.

        Raises:
            OSError: writing failed.
        """
        if self._file is not None:
            self._file.write(json.dumps({**line(), "game": record}).encode() + b"\n")
            self._file.flush()
        self.records[record["key"]] = record

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Writes `results.json` next to the games, atomically."""
        if self.folder is not None:
            fsops.write_text(self.folder / "results.json", json.dumps(results, indent=2) + "\n")

    def close(self) -> None:
        if self._file is not None:
            fsops.sync(self._file.fileno())
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _record(line: bytes) -> Record | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    record = data.get("game") if isinstance(data, dict) else None
    return record if isinstance(record, dict) and isinstance(record.get("key"), str) else None


def line_of(
    episode: Episode,
    record: Record,
    outcomes: Mapping[str, str],
    seated: Mapping[str, str],
    exact: Any = None,
    decode: Mapping[str, Callable[[int], str]] | None = None,
) -> dict[str, Any]:
    """The viewer's line of a finished game; `outcomes`, `seated` (who played), `exact` values and `decode` by agent."""
    return rollout_line(
        episode,
        step=0,
        policy_version=0,
        env=record["env"],
        players=seated,
        outcome=outcomes,
        why_not=dict.fromkeys(episode.trajectories, "evaluation"),
        exact=exact,
        order=episode.order or None,
        decode=decode,
    )
