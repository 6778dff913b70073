"""Reading `rollouts.jsonl`, at once or while it grows."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legos_train.disk import MetricsFile
from legos_train.observe.viewer.results import read_results

LOG = "rollouts.jsonl"
LAST = 64  # bytes of the last line read that must be unchanged when reading continues


class LogError(ValueError):
    """There is nothing to show; the message says where it looked and what to do."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One episode: `number` is its line in the file, from 1; `data` what `rollout_line` wrote."""

    number: int
    data: dict[str, Any]


class LogReader:
    """Reads whole lines of a log that may be growing; an unfinished last line is left for later.

    `bad` has number and reason of every line that could not be used. `generation` counts how often the file was
    replaced or shortened (a resumed run drops what came after its checkpoint): earlier results are then invalid.
    """

    def __init__(self, path: Path):
        self.path = path
        self.generation = 0
        self._restart()

    def _restart(self) -> None:
        self.offset = self.count = 0
        self.bad: list[tuple[int, str]] = []
        self._last = b""

    def read(self, newest: int | None = None) -> list[LogLine]:
        """The lines added since the last call; only the `newest` last ones are parsed and returned.

        Raises:
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as file:
            file.seek(max(0, self.offset - len(self._last)))
            if file.read(len(self._last)) != self._last:
                self.generation += 1
                self._restart()
                file.seek(0)
            kept: deque[tuple[int, bytes]] = deque(maxlen=newest)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                self.offset += len(raw)
                self.count += 1
                self._last = (self._last + raw)[-LAST:]
                if raw.strip():
                    kept.append((self.count, raw))
        return [line for number, raw in kept if (line := self._parse(number, raw)) is not None]

    def _parse(self, number: int, raw: bytes) -> LogLine | None:
        try:
            data = json.loads(raw)
        except ValueError as error:
            self.bad.append((number, f"not JSON ({error})"))
            return None
        if (problem := _problem(data)) is not None:
            self.bad.append((number, problem))
            return None
        return LogLine(number, data)


def _problem(data: Any) -> str | None:
    """Why a line cannot be shown, or None."""
    if not isinstance(data, dict) or not isinstance(data.get("episode"), dict):
        return "no episode"
    trajectories = data["episode"].get("trajectories")
    if not isinstance(trajectories, list) or not trajectories:
        return "an episode without trajectories"
    for trajectory in trajectories:
        if not isinstance(trajectory, dict) or not isinstance(trajectory.get("agent"), str):
            return "a trajectory without agent"
        turns = trajectory.get("turns")
        if not isinstance(turns, list):
            return f"no turns of {trajectory['agent']!r}"
        for turn in turns:
            if not isinstance(turn, dict) or not isinstance(turn.get("action"), str):
                return f"a turn of {trajectory['agent']!r} without action"
            messages = turn.get("observation", [])
            if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
                return f"a turn of {trajectory['agent']!r} whose observation is not a list of messages"
    for name in ("advantages", "trained", "why_not", "players", "outcome", "exact"):
        if not isinstance(data.get(name) or {}, dict):
            return f"{name} is not a table by agent"
    return None


def find_log(folder: Path) -> Path:
    """The log in a folder.

    Raises:
        LogError: the folder does not exist, or has no log.
    """
    if not folder.is_dir():
        what = "is a file; give its folder" if folder.exists() else "does not exist"
        raise LogError(f"{folder} {what}. Runs are kept below runs/, evaluations in the folder of --out")
    path = folder / LOG
    if not path.is_file():
        below = sorted(str(log.parent) for log in folder.glob(f"*/{LOG}"))
        hint = f" There is one in {', '.join(below[:3])}." if below else ""
        raise LogError(
            f"{folder} has no {LOG}.{hint} `legos train` writes it (unless --logs.rollouts is 0) and so does"
            " `legos eval --out DIR`"
        )
    return path


def read_log(folder: Path, newest: int | None = None) -> tuple[list[LogLine], LogReader]:
    """The episodes of a run or an evaluation, oldest first, and the reader (for what was bad or left out).

    Args:
        folder: a run or an evaluation.
        newest: maximum number of last episodes; None for all.

    Raises:
        LogError: no folder, no log, or no episode in it.
        OSError: the log cannot be read.
    """
    reader = LogReader(find_log(folder))
    lines = reader.read(newest)
    if not lines:
        if reader.bad:
            number, reason = reader.bad[0]
            raise LogError(f"{reader.path} has no readable episode; line {number}: {reason}")
        if not (found := read_results(folder)) or not found.get("exploit"):  # which may have been computed
            raise LogError(f"{reader.path} has no finished episode yet; try again after the first step")
    return lines, reader


def read_extras(folder: Path, steps: set[int]) -> tuple[str, dict[str, dict[str, Any]], int]:
    """The files next to the log: the text of `config.toml`, what `metrics.jsonl` says about these steps, and the number
    of episodes played in all steps; 0 if unknown.
    """
    config = folder / "config.toml"
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    rows: dict[str, dict[str, Any]] = {}
    every = MetricsFile.read(folder / "metrics.jsonl")
    for row in every:
        if row["step"] in steps:
            rows[str(row["step"])] = rows.get(str(row["step"]), {}) | row
    return text, rows, sum(row["episodes"] for row in every if isinstance(row.get("episodes"), int))
