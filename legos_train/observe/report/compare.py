"""Several runs in one page: overlaid curves, numbers, and the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from legos_train.config import read_toml
from legos_train.disk import fsops
from legos_train.observe.eval_numbers import by_weights, formatted, metric_name, results
from legos_train.observe.labels import labels_of
from legos_train.observe.report.changed_settings import differing, flat
from legos_train.observe.report.figures import figures
from legos_train.observe.report.report_page import SECTIONS, grid, page, table
from legos_train.observe.report.svg import Figure, Line
from legos_train.observe.run_files import RunFiles, read_run
from legos_train.settings import as_entries

AFTER = ("last", "average", "best")
PREFIXED = ("eval", "reward", "reward_error", "win_rate", "success_rate")
"""The parts of a row that exist for each env."""


def compare(dirs: Sequence[Path]) -> str:
    """A page that compares run directories, one file without scripts or links.

    Raises:
        RunError: a directory is not a run; the message names it.
    """
    runs = [read_run(Path(path)) for path in dirs]
    settings = [read_toml(Path(path) / "config.toml") for path in dirs]
    runs = _by_env(runs, settings)
    labels = labels_of(dirs)
    overlaid = overlay([(label, figures(run.records, run.start)) for label, run in zip(labels, runs)])
    rows = differing([flat(each) for each in settings])
    body = [(section, grid([f for f in overlaid if f.section == section])) for section in SECTIONS]
    same = "<p>The settings of these runs are the same.</p>"
    sections = [
        ("Numbers", table(["", *labels], _numbers(runs), numeric=True)),
        ("Settings that differ", table(["setting", *labels], rows) or same),
        *body,
    ]
    lead = ["Bands are 95 % intervals of running means; a run without that number has no line."]
    return page(f"Runs compared: {', '.join(labels)}", lead, sections)


def write_comparison(dirs: Sequence[Path]) -> Path:
    """Writes `compare.html` into the first directory and returns its path. Raises as `compare`, and OSError."""
    path = Path(dirs[0]) / "compare.html"
    fsops.write_text(path, compare(dirs))
    return path


def overlay(runs: Sequence[tuple[str, Sequence[Figure]]]) -> list[Figure]:
    """One figure for each line that any run has, with a line per run; each run has the same colour in all figures."""
    entries_of: dict[tuple[str, str], list[tuple[int, str, Figure, Line]]] = {}
    for k, (label, drawn) in enumerate(runs):
        for figure in drawn:
            for line in figure.lines:
                if line.points:
                    entries_of.setdefault((figure.name, line.name), []).append((k, label, figure, line))
    out = []
    for (name, line_name), entries in entries_of.items():
        first = entries[0][2]
        alone = line_name in (first.title, "learner", "members", "publish")
        title = first.title if alone else f"{first.title}: {line_name}"
        lines = [Line(label, line.points, line.band, colour=k) for k, label, _, line in entries]
        levels = first.levels if len({entry[2].levels for entry in entries}) == 1 else ()  # only for the same game
        stem, unit = f"{name}-{line_name}", first.unit
        out.append(Figure(stem, title, unit, lines, first.section, bounds=first.bounds, levels=levels))
    return out


def _by_env(runs: Sequence[RunFiles], settings: Sequence[Mapping[str, Any]]) -> list[RunFiles]:
    """The runs, with the name of its env before the numbers of each that has only one, unless all have the same envs.

    In a run with several envs, numbers have such names already.
    """
    names = [[entry.get("name") or entry["id"] for entry in as_entries(each.get("env", ()))] for each in settings]
    if len({frozenset(each) for each in names}) == 1:
        return list(runs)
    return [_of_env(run, own[0]) if len(own) == 1 else run for run, own in zip(runs, names)]


def _of_env(run: RunFiles, env: str) -> RunFiles:
    def named(numbers: Mapping[str, Any]) -> dict[str, Any]:
        return {key if "/" in key or key == "step" else f"{env}/{key}": value for key, value in numbers.items()}

    records = [
        {key: named(value) if key in PREFIXED and isinstance(value, Mapping) else value for key, value in row.items()}
        for row in run.records
    ]
    result = {key: named(value) if key in AFTER else value for key, value in run.result.items()}
    return RunFiles(records, named(run.start), result)


def _after(run: RunFiles) -> list[Mapping[str, Any]]:
    """The numbers of the last, the average and the best weights; of an unfinished run, by its last evaluation."""
    if run.result:
        return [run.result.get(kind) or {} for kind in AFTER]
    evaluated = [row["eval"] for row in run.records if row.get("eval")]
    return [*by_weights(evaluated[-1]), {}] if evaluated else [{}, {}, {}]


def _numbers(runs: Sequence[RunFiles]) -> list[list[str]]:
    """Steps, time and trained tokens; then every measured number before, last, average, best."""
    records = [run.records for run in runs]
    rows = [
        ["steps", *(str(r[-1]["step"] if r else 0) for r in records)],
        ["seconds", *(f"{sum(x.get('seconds') or 0 for x in r):.1f}" for r in records)],
        ["trained tokens", *(f"{sum(x.get('action_tokens') or 0 for x in r):,}" for r in records)],
        ["finished", *("yes" if run.result else "no" for run in runs)],
    ]
    tables = [[run.start, *_after(run)] for run in runs]
    for key in [key for key in results(*chain(*tables)) if key != "step"]:
        for k, name in enumerate(("before", "last", "weight average", "best")):
            if any(key in table[k] for table in tables):
                rows.append([f"{metric_name(key)}, {name}", *(formatted(table[k], key) for table in tables)])
    return rows
