"""The self-contained page: template, style, script and data in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from legos_train.disk import fsops
from legos_train.observe.viewer.compact import Json, compact
from legos_train.observe.viewer.log import LogLine, LogReader, read_extras, read_log
from legos_train.observe.viewer.results import read_results

PAGE = "view.html"
SCRIPTS = (
    "dom.js", "data.js", "tokens.js", "board.js", "turns.js", "episode.js", "list.js", "overview.js", "main.js",
)  # fmt: skip
STYLES = ("base.css", "list.css", "episode.css")


def write_page(folders: Sequence[Path], newest: int | None = 5000) -> tuple[Path, list[str]]:
    """Writes `view.html` into the first folder.

    Args:
        folders: runs or evaluations, one or several to compare.
        newest: at most so many of the last episodes of each; None for all.

    Returns:
        The page's path, and remarks for the user (lines that were bad or left out).

    Raises:
        LogError: nothing to look at in a folder.
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
    fsops.write_text(path, build(header, bodies))
    return path, remarks


def gather(folders: Sequence[Path], newest: int | None = None) -> tuple[Json, list[str], list[LogReader]]:
    """The header (runs, rows, metrics), the bodies as JSON texts, one per row, and the logs' readers."""
    header: Json = {"runs": [], "rows": [], "live": None}
    bodies: list[str] = []
    readers = []
    for number, folder in enumerate(map(Path, folders)):
        lines, reader = read_log(folder, newest)
        shown = add_lines(lines, number, reader, header["rows"], bodies)
        config, metrics = read_extras(folder, steps_of(lines))
        older = reader.count - len(reader.bad) - shown if newest is not None and shown >= newest else 0
        header["runs"].append(
            {
                "label": _label(folder),
                "path": str(folder),
                "config": config,
                "metrics": metrics,
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
            text = as_json(body)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # fields of a wrong type
            reader.bad.append((line.number, f"{type(error).__name__}: {error}"))
            continue
        rows.append(row)
        bodies.append(text)
    return len(rows) - before


def steps_of(lines: Sequence[LogLine]) -> set[int]:
    return {step for line in lines if isinstance(step := line.data.get("step"), int)}


def build(header: Json, bodies: Sequence[str]) -> str:
    """The page as HTML text. `bodies` are JSON texts, one per row of the header."""
    style = "\n".join(_asset(name) for name in STYLES)
    script = '(() => {\n"use strict";\n' + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();\n"
    labels = ", ".join(run["label"] for run in header["runs"])
    parts = {
        "csp": csp(script, style, live=header["live"] is not None),
        "title": html.escape(f"{labels} · Legos rollouts"),
        "style": style,
        "script": script,
        # one line per JSON text: none holds a line break, and none a `<` that could end the script element
        "data": "\n".join([as_json(header), *bodies]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def csp(script: str, style: str, *, live: bool) -> str:
    """The content security policy: this script, this style, nothing from anywhere, no HTML made from text."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def as_json(value: Any) -> str:
    """JSON in ASCII on one line that is safe inside a script element; NaN and infinities become texts."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _asset(name: str) -> str:
    return (files("legos_train.observe.viewer") / "assets" / name).read_text(encoding="utf-8")


def _label(folder: Path) -> str:
    return folder.resolve().name or str(folder)
