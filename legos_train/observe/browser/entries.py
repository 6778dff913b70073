"""The list's line for a run, and for each row of an evaluation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legos_train.observe.eval_numbers import ENDINGS, by_weights, ends_of, is_number, latest, results
from legos_train.observe.report.changed_settings import flat
from legos_train.observe.verdict import measures

Json = dict[str, Any]
POINTS = 64
"""Points of a curve; one with twice as many drops every other."""


LAST = 64  # bytes before the place where reading goes on that must be unchanged


class RunEntry:
    """A run directory; its metrics are read incrementally, so that refreshing a long run is cheap."""

    def __init__(self, path: Path):
        self.path = path
        self._restart()

    def _restart(self) -> None:
        self._offset, self._last = 0, b""
        self._totals = {"steps": 0, "episodes": 0, "tokens": 0, "seconds": 0.0}
        self._evaluation: dict[str, float] = {}
        self._curves: dict[str, list[float]] = {}

    def line(self) -> Json:
        """The run's line; unreadable files count as missing, and `note` reports them."""
        notes: list[str] = []
        settings = _toml(self.path / "config.toml", notes)
        start = _json(self.path / "start.json", notes)
        result = _json(self.path / "result.json", notes)
        try:
            self._read_on()
        except OSError as error:
            notes.append(f"metrics.jsonl: {error.strerror}")
        last, _ = by_weights(self._evaluation)
        published = result.get("average" if result.get("published") == "average" else "last") or last
        numbers = {**published, **(result.get("against") or {})}
        named = [name for name in results(numbers) if is_number(numbers[name])]
        stopped = result.get("stopped")
        curve = next((self._curves[name] for name in measures(numbers) if len(self._curves.get(name, ())) > 1), [])
        return {
            "kind": "run",
            "env": _envs(settings.get("env")),
            "policy": str(settings.get("model", "")),
            "opponent": "",
            "state": "unfinished" if not result else f"stopped: {stopped}" if stopped else "finished",
            "verdict": str(result.get("verdict", "")),
            "numbers": {**{name: numbers[name] for name in named}, **{k: v for k, v in self._totals.items() if v}},
            "before": {name: start[name] for name in named if is_number(start.get(name))},
            "ends": {name: ends for name in named if (ends := ends_of(numbers, name)) and all(map(is_number, ends))},
            "settings": flat(settings),
            "curve": [round(value, 6) for value in curve],
            "note": "; ".join(notes),
        }

    def _read_on(self) -> None:
        file = self.path / "metrics.jsonl"
        if not file.is_file():
            return self._restart()
        with file.open("rb") as rows:
            rows.seek(max(0, self._offset - len(self._last)))
            if rows.read(len(self._last)) != self._last:  # cut by a resume, and perhaps longer again
                self._restart()
                rows.seek(0)
            for raw in rows:
                if not raw.endswith(b"\n"):
                    break
                self._offset += len(raw)
                self._last = raw[-LAST:]
                try:
                    row = json.loads(raw)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self._totals["steps"] = max(self._totals["steps"], row["step"] if isinstance(row.get("step"), int) else 0)
        for name, key in (("episodes", "episodes"), ("tokens", "action_tokens"), ("seconds", "seconds")):
            self._totals[name] += row[key] if is_number(row.get(key)) else 0
        evaluation = row.get("eval")
        if not isinstance(evaluation, Mapping) or not evaluation:
            return
        self._evaluation = latest((self._evaluation, evaluation))
        for name in measures(by_weights(evaluation)[0]):
            if is_number(evaluation[name]):
                curve = self._curves.setdefault(name, [])
                curve.append(float(evaluation[name]))
                if len(curve) >= 2 * POINTS:
                    del curve[-2::-2]


def evaluation_lines(path: Path) -> list[Json]:
    """One line for each policy, opponent and env of an evaluation, for each policy of a tournament, and for the result
    of `legos exploit`.
    """
    notes: list[str] = []
    data = _json(path / "results.json", notes)
    ratings = data.get("ratings")
    if isinstance(ratings, Mapping) and ratings:
        envs = ", ".join(str(env) for env in data.get("envs") or ())
        return [
            _line("tournament", envs, str(name), "", {k: one.get(k) for k in ("elo", "score", "games")}, one, "elo")
            for name, one in ratings.items()
            if isinstance(one, Mapping)
        ]
    exploit = data.get("exploit")
    if isinstance(exploit, Mapping) and isinstance(found := exploit.get("nash_conv"), Mapping):
        numbers = {"nash_conv": found.get("estimate")}
        env, policy = str(exploit.get("env")), str(exploit.get("policy"))
        return [_line("examination", env, policy, "", numbers, found, "nash_conv")]
    rows = [row for row in data.get("results") or () if isinstance(row, Mapping)]
    if not rows:
        unfinished = _line("evaluation", "", "", "", {}, {}, "")
        return [{**unfinished, "state": "unfinished", "note": "; ".join(notes)}]
    return [
        _line(
            "evaluation", str(row.get("env")), str(row.get("policy")), str(row.get("opponent", "")),
            _of_row(row), row, "mean",
        )
        for row in rows
    ]  # fmt: skip


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    shares = {name: row.get(name) for name in ENDINGS if row.get(name) or name in ("win", "loss")}
    if row.get("competitive") is False:  # nothing is won, drawn or lost here
        shares = {"success": row.get("win")} | {k: v for k, v in shares.items() if k not in ("win", "draw", "loss")}
    found = [table for name in ("accuracy", "exact") if isinstance(table := row.get(name), Mapping)]
    tables = {k: v for table in found for k, v in table.items() if k not in ("problems", "samples")}
    return {"mean": row.get("mean"), **shares, **tables, "games": row.get("games")}


def _line(
    kind: str, env: str, policy: str, opponent: str, numbers: Mapping[str, Any], row: Mapping[str, Any], mean: str
) -> Json:
    ends = row.get("ci95")
    pair = ends if isinstance(ends, list) and len(ends) == 2 and all(map(is_number, ends)) else [0, 0]
    has_ends = pair[0] < pair[1] and is_number(
        numbers.get(mean)
    )  # equal from one seed, or equal results: not informative
    return {
        "kind": kind,
        "env": env,
        "policy": policy,
        "opponent": "" if row.get("alone") else opponent,
        "state": "finished",
        "verdict": "",
        "numbers": {name: value for name, value in numbers.items() if is_number(value)},
        "before": {},
        "ends": {mean: ends} if has_ends else {},
        "settings": {},
        "curve": [],
        "note": "",
    }


def _envs(value: Any) -> str:
    entries = value if isinstance(value, list) else [value]
    return ", ".join(str(one.get("id", "?")) if isinstance(one, Mapping) else str(one or "") for one in entries)


def _json(file: Path, notes: list[str]) -> Json:
    try:
        data = json.loads(file.read_bytes()) if file.is_file() else {}
    except (ValueError, OSError, RecursionError) as error:
        notes.append(f"{file.name}: {error}")
        return {}
    return data if isinstance(data, dict) else {}


def _toml(file: Path, notes: list[str]) -> Json:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        notes.append(f"{file.name}: {error}")
        return {}
