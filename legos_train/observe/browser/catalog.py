"""Finds the runs and evaluations below a folder and what to show of each, as plain values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from legos_train.observe.browser.entries import Json, RunEntry, evaluation_lines
from legos_train.observe.eval_numbers import LESS_IS_BETTER, is_worth, metric_name
from legos_train.observe.viewer import LOG

MOST, DEEPEST = 1000, 8
"""Maximum number of runs and evaluations shown, newest first, and depth of the search in folders."""
INSIDE = frozenset(("checkpoints", "adapter", "adapters", "average", "best", "last", "figures", "league", "wandb"))
"""Folders inside a run that contain no runs."""
ITSELF = "~"
"""The name of the folder itself, if it is also a run."""
COUNTS = {
    "steps": "steps",
    "episodes": "episodes",
    "tokens": "trained tokens",
    "seconds": "seconds",
    "games": "games",
    "mean": "mean return",
    "elo": "Elo (Bradley-Terry)",
    "score": "share of points",
}
MORE_IS_BETTER = ("elo", "score", "mean", "accuracy", "success", "win")
MORE_STARTS = ("pass@", "mean@", "wins_vs_", "no_loss")
"""More numbers with a better direction, besides the measures of weights; others, such as draws, have none."""


def is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()


def is_evaluation(folder: Path) -> bool:
    return not is_run(folder) and ((folder / "results.json").is_file() or (folder / LOG).is_file())


def holds_several(folder: Path) -> bool:
    """Whether a folder is not a run or evaluation itself, and has some below it."""
    return not is_run(folder) and not is_evaluation(folder) and any(True for _ in found_below(folder))


def found_below(folder: Path) -> Iterator[Path]:
    """The folders of runs and evaluations, `folder` among them; links are not followed."""
    depth = len(folder.parts)
    for place, names, _ in os.walk(folder):
        here = Path(place)
        run = is_run(here)
        if run or is_evaluation(here):
            yield here
        deep = len(here.parts) - depth >= DEEPEST
        names[:] = [] if deep else sorted(n for n in names if not n.startswith(".") and not (run and n in INSIDE))


class Catalog:
    """The contents of a folder's page. `read` refreshes it and keeps what has not changed.

    Attributes:
        folders: the runs and evaluations by name, their path below the folder.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.folders: dict[str, Path] = {}
        self._runs: dict[str, RunEntry] = {}
        self._evaluations: dict[str, tuple[object, list[Json]]] = {}

    def read(self) -> Json:
        """`lines`, one for a run and one for each row of an evaluation; `columns`, the numbers that some of them have;
        `left_out`, the number of older runs and evaluations not shown.

        Raises:
            OSError: the folder cannot be read.
        """
        found = {self._name(place): place for place in found_below(self.folder)}
        newest = sorted(found, key=lambda name: _changed(found[name]), reverse=True)[:MOST]
        self.folders = {name: found[name] for name in newest}
        self._runs = {name: entry for name, entry in self._runs.items() if name in self.folders}
        self._evaluations = {name: kept for name, kept in self._evaluations.items() if name in self.folders}
        lines = [line for name, place in self.folders.items() for line in self._lines(name, place)]
        _keep_varying([line for line in lines if line["kind"] == "run"])
        return {
            "folder": str(self.folder),
            "lines": lines,
            "columns": _columns(lines),
            "left_out": len(found) - len(newest),
        }

    def _name(self, place: Path) -> str:
        name = place.relative_to(self.folder).as_posix()
        return ITSELF if name == "." else name

    def _lines(self, name: str, place: Path) -> list[Json]:
        shared = {
            "id": name,
            "name": self.folder.resolve().name if name == ITSELF else name,
            "changed": _changed(place),
            "episodes": (place / LOG).is_file(),
            "report": (place / "report.html").is_file(),
            "view": (place / "view.html").is_file(),
        }
        if is_run(place):
            lines = [self._runs.setdefault(name, RunEntry(place)).line()]
        else:
            stamp = _stamp(place / "results.json")
            if name not in self._evaluations or self._evaluations[name][0] != stamp:
                self._evaluations[name] = stamp, evaluation_lines(place)
            lines = self._evaluations[name][1]
        return [{**shared, **line} for line in lines]


def _columns(lines: Sequence[Mapping[str, Any]]) -> list[Json]:
    """All numbers: key, name, and 1 or -1 for whether higher or lower is better, 0 if neither; the most common ones
    first, and counts last.
    """
    many: dict[str, int] = {}
    for line in lines:
        for key in line["numbers"]:
            many[key] = many.get(key, 0) + 1
    keys = sorted(many, key=lambda key: (key in COUNTS and key not in MORE_IS_BETTER, -many[key]))
    return [{"key": key, "name": COUNTS.get(key) or metric_name(key), "better": _better(key)} for key in keys]


def _better(key: str) -> int:
    kind = key.rpartition("/")[2]
    if kind in LESS_IS_BETTER:
        return -1
    return int(is_worth(kind) or kind in MORE_IS_BETTER or kind.startswith(MORE_STARTS))


def _keep_varying(runs: Sequence[Json]) -> None:
    """Drops the settings that all runs share."""
    keys = {key for run in runs for key in run["settings"]}
    same = {key for key in keys if len({run["settings"].get(key) for run in runs}) == 1}
    for run in runs:
        run["settings"] = {key: value for key, value in run["settings"].items() if key not in same}


def _changed(place: Path) -> float:
    """When something was last written there, in seconds since 1970."""
    files = (place / name for name in ("metrics.jsonl", LOG, "results.json", "result.json", "config.toml"))
    return max((stamp[0] for file in files if (stamp := _stamp(file)) is not None), default=0.0)


def _stamp(file: Path) -> tuple[float, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime, found.st_size
