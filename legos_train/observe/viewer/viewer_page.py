"""The self-contained page: template, style, script and data in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from legos_train.disk import fsops
from legos_train.observe.labels import labels_of
from legos_train.observe.self_contained import BASE_SCRIPT, BASE_STYLE, script_json, self_contained
from legos_train.observe.viewer.compact import Json, compact
from legos_train.observe.viewer.log import LogLine, LogReader, read_extras, read_log
from legos_train.observe.viewer.results import read_results

PAGE = "view.html"
ASSETS = files("legos_train.observe.viewer") / "assets"
SCRIPTS = (
    "data.js", "tokens.js", "board.js", "turns.js", "episode.js", "list.js", "overview.js", "main.js",
)  # fmt: skip
STYLES = ("list.css", "episode.css")


def write_page(folders: Sequence[Path], newest: int | None = 5000) -> tuple[Path, list[str]]:
    """Writes `view.html` into the first folder.

    Args:
        folders: runs or evaluations, one or several to compare.
        newest: maximum number of last episodes of each; None for all.

    Returns:
        The page's path, and remarks for the user (lines that were invalid or left out).

    Raises:
        LogError: a folder has nothing to show.
        OSError: a file cannot be read or written.
    """
    header, bodies, readers = gather(folders, newest)
    remarks = []
    for run, reader in zip(header["runs"], readers):
        if reader.bad:
            number, reason = reader.bad[0]
            remarks.append(f"{reader.path}: {len(reader.bad)} lines left out; line {number}: {reason}")
        if run["older"]:
            remarks.append(f"{reader.path}: the newest {run['shown']} of {run['shown'] + run['older']} (see --last)")
    path = Path(folders[0]) / PAGE
    fsops.write_text(path, build_page(header, bodies))
    return path, remarks


def gather(folders: Sequence[Path], newest: int | None = None) -> tuple[Json, list[str], list[LogReader]]:
    """The header (runs, rows, metrics), the bodies as JSON texts, one per row, and the logs' readers."""
    header: Json = {"runs": [], "rows": [], "live": None}
    bodies: list[str] = []
    readers = []
    labels = labels_of(folders)
    for number, folder in enumerate(map(Path, folders)):
        lines, reader = read_log(folder, newest)
        shown = add_lines(lines, number, reader, header["rows"], bodies)
        config, metrics, played = read_extras(folder, steps_of(lines))
        older = reader.count - len(reader.bad) - shown if newest is not None and shown >= newest else 0
        header["runs"].append(
            {
                "label": labels[number],
                "path": str(folder),
                "config": config,
                "metrics": metrics,
                "played": played,
                "results": read_results(Path(folder)),
                "report": (Path(folder) / "report.html").is_file(),
                "shown": shown,
                "older": older,
                "bad": len(reader.bad),
            }
        )
        readers.append(reader)
    return header, bodies, readers


def add_lines(lines: Sequence[LogLine], run: int, reader: LogReader, rows: list[Json], bodies: list[str]) -> int:
    """Appends the rows and bodies of log lines; a line that cannot be shown goes to `reader.bad`. Returns how many."""
    before = len(rows)
    for line in lines:
        try:
            row, body = compact(line, run)
            text = script_json(body)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # fields of a wrong type
            reader.bad.append((line.number, f"{type(error).__name__}: {error}"))
            continue
        rows.append(row)
        bodies.append(text)
    return len(rows) - before


def steps_of(lines: Sequence[LogLine]) -> set[int]:
    return {step for line in lines if isinstance(step := line.data.get("step"), int)}


def build_page(header: Json, bodies: Sequence[str]) -> str:
    """The page as HTML text. `bodies` are JSON texts, one per row of the header."""
    labels = ", ".join(run["label"] for run in header["runs"])
    return self_contained(
        ASSETS / "page.html",
        title=f"{labels} · Legos rollouts",
        styles=[BASE_STYLE, *(ASSETS / name for name in STYLES)],
        scripts=[BASE_SCRIPT, *(ASSETS / name for name in SCRIPTS)],
        data=[script_json(header), *bodies],
        live=header["live"] is not None,
    )
