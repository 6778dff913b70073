"""Turns rows of metrics.jsonl into figures, with units and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from legos_train.observe.eval_numbers import (
    AVERAGE,
    ENDINGS,
    EXACT,
    SEAT,
    Z95,
    ends_of,
    is_number,
    metric_name,
    results,
    unit_of,
)
from legos_train.observe.report.scales import Point, running_mean, window_of
from legos_train.observe.report.svg import Figure, Line

MetricsRow = Mapping[str, Any]

WEIGHTS = (("last weights", ""), ("weight average", AVERAGE))
UNSAMPLED = {"last": "without sampling", "average": "its average"}
TABULAR = (
    "Without sampling: mirror descent on one number per action, exact values, with this run's KL, reference and "
    "average schedule. What is left between the lines is due to sampling, the model and its optimiser."
)
NO_UNSAMPLED = "No run without sampling is shown beside it: "
ALARMS = {
    "role_gap": "reward",
    "unscored": "unscored_rate",
    "invalid": "invalid_rate",
    "illegal": "illegal_rate",
    "idle": "zero_advantages",
    "live": "live_share",
    "entropy": "entropy",
    "length": "tokens_per_turn",
    "zero_advantages": "zero_advantages",
    "kl": "kl",
}
"""The figure in which an alarm of the collapse monitor is marked; those of evaluations are in the first of these."""

SINGLE = (
    ("invalid_rate", "Invalid games", "share of games ended by an invalid move", "Health", (0.0, None)),
    ("illegal_rate", "Illegal actions", "share of actions that were not legal", "Health", (0.0, None)),
    ("unscored_rate", "Unscored episodes", "share of episodes", "Health", (0.0, 1.0)),
    ("live_share", "Tokens with a gradient", "share of tokens", "Health", (0.0, 1.0)),
    ("entropy", "Entropy", "nats per token", "Health", (0.0, None)),
    ("kl", "KL to the reference", "nats per token", "Health", (0.0, None)),
    ("tokens_per_turn", "Length of an action", "tokens", "Health", (0.0, None)),
    ("zero_advantages", "Nothing to learn", "share of advantages that are exactly 0", "Health", (0.0, 1.0)),
    ("grad_norm", "Gradient norm before clipping", "L2 norm", "Health", (0.0, None)),
    ("mismatch_max", "Engine against trainer", "largest gap of a log-probability, nats", "Health", (0.0, None)),
    ("tokens_per_second", "Generation speed", "action tokens per second", "Speed", (0.0, None)),
)


def column(records: Sequence[MetricsRow], *path: str) -> list[Point]:
    """(step, value) of every row that has a number at the path, such as `("league", "rating")`."""
    points: list[Point] = []
    for record in records:
        value: Any = record
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if is_number(value):
            points.append((float(record["step"]), float(value)))
    return points


def figures(
    records: Sequence[MetricsRow],
    start: Mapping[str, float] | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
    unsampled: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Figure]:
    """Every figure that a run's rows have data for.

    Args:
        records: rows of metrics.jsonl.
        start: the measured numbers before the first step.
        references: by measured number, the values of others, such as `{"nash_conv": {"uniform play": 0.92}}`.
        unsampled: by measured number, what the same schedule reaches without sampling, `last` and `average` as lists of
            [step, value]; or `left_out`, why that is not known.
    """
    window = window_of(len(records))
    measured = _measured(records, start or {}, references or {}, unsampled or {})
    followed = measured[0].name.partition("--")[0] if measured else ""
    out = [*measured, *_by_role(records, window)]
    for key, title, unit, section, bounds in SINGLE:
        if lines := _lines(records, key, title, window):
            note = _note(window, spread=True) if any(line.band for line in lines) else _mean(window)
            out.append(Figure(key, title, unit, lines, section, note, bounds))
    out += [*_staleness(records, window), *_seconds(records, window), *_league(records, window)]
    marks: dict[str, list[tuple[float, str]]] = {}
    for record in records:
        for alarm in record.get("alarms") or ():
            name = alarm["name"]
            marks.setdefault(ALARMS.get(name, followed), []).append((record["step"], f"alarm: {name}"))
    return [replace(figure, marks=marks.get(figure.name.partition("--")[0], ())) for figure in out]


def _lines(records: Sequence[MetricsRow], key: str, title: str, window: int) -> list[Line]:
    """A number over the steps: one line per learner if learners have it separately, else one for all."""
    names = dict.fromkeys(name for record in records for name in record.get("learners") or ())
    own = {name: points for name in names if (points := column(records, "learners", name, key))}
    if not own and (points := column(records, key)):
        own = {title: points}
    return [_smooth(name, points, window, band=key != "mismatch_max") for name, points in own.items()]


def _measured(
    records: Sequence[MetricsRow],
    start: Mapping[str, float],
    references: Mapping[str, Mapping[str, float]],
    unsampled: Mapping[str, Mapping[str, Any]],
) -> list[Figure]:
    """The numbers of evaluations: last weights and weight average. Exact ones need no interval."""
    tables = [start, *(record.get("eval") or {} for record in records)]
    keys = [key for key in results(*tables) if not key.endswith(AVERAGE)]
    out = []
    for key in [key for key in keys if key.rpartition("/")[2] not in ENDINGS and SEAT not in key]:
        kind = key.rpartition("/")[2]
        lines = [_evaluated(name, key + suffix, records, start, k) for k, (name, suffix) in enumerate(WEIGHTS)]
        seats = [other for other in keys if other.startswith(f"{key}{SEAT}")]
        lines += [_evaluated(f"as {s.partition(SEAT)[2]}", s, records, start, 4 + k) for k, s in enumerate(seats)]
        drawn = [line for line in lines if line.points]
        note = "Played on fixed seeds" + ("; band: 95 % interval over seeds." if any(d.band for d in drawn) else ".")
        note = (
            "Exact: computed from the policy's own action probabilities, no sampling noise." if kind in EXACT else note
        )
        beside = unsampled.get(key, {})
        drawn += [
            Line(name, [(float(x), float(y)) for x, y in beside[part]], colour=len(WEIGHTS) + k)
            for k, (part, name) in enumerate(UNSAMPLED.items())
            if part in beside
        ]
        if "left_out" in beside:
            note += f" {NO_UNSAMPLED}{beside['left_out']}."
        elif beside:
            note += f" {TABULAR}"
        bounds = (None, None) if unit_of(kind) == "return per game" else (0.0, None)
        if any(line.points for line in lines):
            title = metric_name(key)
            title = title[0].upper() + title[1:]
            others = {**({"equilibrium": 0.0} if kind == "nash_conv" else {}), **references.get(key, {})}
            levels = tuple((value, name) for name, value in others.items() if is_number(value))
            figure = Figure(_stem(key), title, unit_of(kind), drawn, "Evaluation", note, bounds, levels=levels)
            out.append(figure)
    for env in dict.fromkeys(key.rpartition("/")[0] for key in keys):
        ended = [f"{env}/{kind}" if env else kind for kind in ENDINGS]
        lines = [
            _evaluated(ENDINGS[key.rpartition("/")[2]], key, records, start, k)
            for k, key in enumerate(key for key in ended if key in keys)
        ]
        if drawn := [line for line in lines if line.points]:
            title = f"{env}: how its games ended" if env else "How its games ended"
            name, unit = _stem(f"{env}/endings" if env else "endings"), "share of the evaluation's games, last weights"
            out.append(Figure(name, title, unit, drawn, "Evaluation", "Played on fixed seeds.", (0.0, 1.0)))
    return out


def _evaluated(name: str, key: str, records: Sequence[MetricsRow], start: Mapping[str, float], colour: int) -> Line:
    """A result of the evaluations over the steps, with its interval if it has one."""
    rows = [(0.0, start), *((float(record["step"]), record.get("eval") or {}) for record in records)]
    points = [(step, float(row[key])) for step, row in rows if is_number(row.get(key))]
    ends = [(step, ends_of(row, key)) for step, row in rows if is_number(row.get(key))]
    band = [(step, *pair) for step, pair in ends if pair is not None and all(map(is_number, pair))]
    return Line(name, points, band, colour=colour)


def _by_role(records: Sequence[MetricsRow], window: int) -> list[Figure]:
    """Reward and win rate by role, one figure per env."""
    out: list[Figure] = []
    for key, title, unit, bounds in (
        ("reward", "Reward by role", "mean return per game", (None, None)),
        ("win_rate", "Win rate by role", "share of trained games won, a draw counts half", (0.0, 1.0)),
        ("success_rate", "Success rate by role", "share of seats with a right answer or a return above 0", (0.0, 1.0)),
    ):
        roles = sorted({role for record in records for role in record.get(key) or ()})
        envs = sorted({role.rpartition("/")[0] for role in roles})
        for env in envs:
            lines = []
            own = any(f"{key}_error" in record for record in records)
            for role in [role for role in roles if role.rpartition("/")[0] == env]:
                points = column(records, key, role)
                errors = dict(column(records, f"{key}_error", role)) if own else None
                name = role.rpartition("/")[2]
                lines.append(_smooth(name, points, window, errors))
            name, head = (f"{key}--{_stem(env)}", f"{title}, {env}") if env else (key, title)
            out.append(Figure(name, head, unit, lines, "Learning", _note(window, spread=not own), bounds))
    return out


def _staleness(records: Sequence[MetricsRow], window: int) -> list[Figure]:
    mean, most = column(records, "staleness_mean"), column(records, "staleness_max")
    lines = [Line("mean", running_mean(mean, window)[0]), Line("largest", most)]
    title, unit = "Staleness", "optimiser steps between sampling a token and training on it"
    drawn = [line for line in lines if line.points]
    return [Figure("staleness", title, unit, drawn, "Speed", "", (0.0, 1.0))] if drawn else []


def _seconds(records: Sequence[MetricsRow], window: int) -> list[Figure]:
    parts = [
        Line(name, running_mean(points, window)[0])
        for name in ("play", "generate", "learn", "pack", "publish")
        if (points := column(records, f"seconds_{name}"))
    ]
    whole = column(records, "seconds")
    note = f"Running means over {window} steps; play: the learner waits for episodes."
    out = []
    if whole:
        parts.insert(0, Line("whole step", running_mean(whole, window)[0]))
        out.append(Figure("seconds", "Where the time goes", "seconds per step", parts, "Speed", note, (0.0, None)))
    if swap := column(records, "seconds_publish"):
        line = _smooth("publish", [(x, y * 1000) for x, y in swap], window)
        note = f"Sending new weights to the engines and checking that they serve them. {_note(window, spread=True)}"
        out.append(Figure("publish", "Weight swap", "milliseconds per publish", [line], "Speed", note, (0.0, None)))
    return out


def _league(records: Sequence[MetricsRow], window: int) -> list[Figure]:
    out = []
    several = dict.fromkeys(name for row in records for name in (row.get("league") or {}).get("learners", ()))
    ratings, banded = [], False
    for name in several or ("learner",):
        path = ("league", "learners", name) if several else ("league",)
        if rating := column(records, *path, "rating"):
            sigma = dict(column(records, *path, "rating_sigma"))
            band = [(x, mu - Z95 * sigma[x], mu + Z95 * sigma[x]) for x, mu in rating if x in sigma]
            ratings.append(Line(name, rating, band))
            banded |= bool(band)
    if ratings:
        whose = "Each learner's" if several else "The learner's"
        note = f"{whose} mean skill; members are rated on the same scale."
        note += " Band: OpenSkill's own 95 % interval, mu ± 1.96 sigma." if banded else ""
        title = "Ratings of the learners" if several else "Rating of the learner"
        out.append(Figure("rating", title, "OpenSkill mu", ratings, "League", note))
    meetings = [
        Line(f"{name} against {other}", wins)
        for name in several
        for other in several
        if (wins := column(records, "league", "learners", name, "against", other))
    ]
    if meetings:
        unit, note = "recent win rate", "A draw counts half. Only games from which the first one learned."
        out.append(Figure("rivals", "Learners against each other", unit, meetings, "League", note, (0.0, 1.0)))
    mean, least = column(records, "league", "win_rate"), column(records, "league", "least_win_rate")
    if mean:
        lines = [Line("mean over members", mean), Line("hardest member", least)]
        out.append(Figure("league_win_rate", "Against the league", "recent win rate", lines, "League", "", (0.0, 1.0)))
    if members := column(records, "league", "members"):
        line = Line("members", members)
        out.append(Figure("members", "Size of the league", "members", [line], "League", "", (0.0, None)))
    return out


def _smooth(
    name: str,
    points: Sequence[Point],
    window: int,
    errors: Mapping[float, float] | None = None,
    *,
    band: bool = True,
) -> Line:
    means, bands = running_mean(points, window, None if errors is None else [errors.get(x) for x, _ in points])
    return Line(name, means, bands if band else (), points if window > 1 else ())


def _note(window: int, *, spread: bool) -> str:
    if spread and window < 2:
        return "Every step's own number; too few steps for an interval."
    source = "the spread between steps" if spread else "the spread between games (standard error of the batch mean)"
    return f"{_mean(window)[:-1]}; band: 95 % interval from {source}."


def _mean(window: int) -> str:
    return f"Running mean over {window} steps." if window > 1 else "Every step's own number."


def _stem(name: str) -> str:
    """A file name for a key such as `Nim-v0/nash_conv`."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
