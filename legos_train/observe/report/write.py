"""`report.html` and `figures/` of a run, from its directory and, at the end of training, the trainer's facts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from legos_train.config import TrainConfig, to_toml
from legos_train.disk import fsops
from legos_train.observe.eval_numbers import Z95
from legos_train.observe.report.changed_settings import changed
from legos_train.observe.report.figures import figures
from legos_train.observe.report.lost_games import games_html, sample_games, shared_lines
from legos_train.observe.report.report_page import SECTIONS, bar_table, grid, page, picture, table
from legos_train.observe.report.result_table import summary_rows
from legos_train.observe.report.svg import heat_map, line_chart, standalone
from legos_train.observe.result import Result
from legos_train.observe.run_files import read_run

UNFINISHED = "not finished"


def write_report(
    path: Path,
    config: TrainConfig,
    result: Result,
    records: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes `path/report.html`, one file without scripts or links, and its figures as `path/figures/*.svg`.

    Args:
        path: the run directory; sample games come from its rollouts.jsonl.
        config: settings of the run.
        result: the result of the run.
        records: rows of metrics.jsonl.
        facts: `strategy` (the policy in every situation), `references` (exact numbers of others), `unsampled` (what the
            run's schedule reaches with exact values) and `league` (its payoffs), stored in `figures/data.json`; None:
            read from there.

    Raises:
        OSError: a file cannot be written.
    """
    kept = path / "figures/data.json"
    fresh = facts is not None
    if facts is None:
        facts = json.loads(kept.read_text()) if kept.exists() else {}
        if facts.get("steps") != result.steps:  # of an earlier end; the run has been continued since
            facts = {"references": facts.get("references")}
    drawn = figures(records, result.start, facts.get("references"), facts.get("unsampled"))
    maps = _heat_maps(facts.get("league") or {})
    by_section = {name: grid([f for f in drawn if f.section == name]) for name in SECTIONS}
    rows = summary_rows(result)
    summary = table(_heads(result), rows, numeric=True)
    league = by_section["League"]
    if maps:
        league += f"<div class='grid below'>{''.join(picture(svg, note, 'row') for _, svg, note in maps)}</div>"
    strategy = facts.get("strategy") or {}
    before, after = sample_games(path / "rollouts.jsonl")
    shared = shared_lines([*before, *after])
    games = games_html("before", before, shared) + (games_html("after", after, shared) if after else "")
    sections = [
        ("Before and after", summary),
        *((name, by_section[name]) for name in SECTIONS[:2]),
        ("Alarms", _alarms(records)),
        ("What the policy does", bar_table(["situation", "move", *strategy["columns"]], strategy["rows"]))
        if strategy
        else ("", ""),
        ("Sample games", f"<div class=grid>{games}</div>" if before else ""),
        *((name, by_section[name]) for name in SECTIONS[2:4]),
        ("League", league + _ratings(facts.get("league") or {})),
        ("Settings", _settings(config)),
    ]
    title = f"{config.title}: {config.model}, {result.steps} steps, seed {config.seed}"
    fsops.write_text(path / "report.html", page(title, _lead(result, records, config.eval.best), sections))
    folder = path / "figures"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for figure in drawn:
        (folder / f"{figure.name}.svg").write_text(standalone(line_chart(figure)), encoding="utf-8")
    for name, svg, _ in maps:
        (folder / f"{name}.svg").write_text(standalone(svg), encoding="utf-8")
    if fresh and facts:
        kept.write_text(json.dumps({**facts, "steps": result.steps}) + "\n", encoding="utf-8")


def report_again(path: Path) -> Path:
    """Writes the report of a run directory from its files, even while it is running; returns `report.html`.

    Raises:
        RunError: the directory is not a run.
        ConfigError: its config.toml is not valid in this version.
    """
    records, start, finished = read_run(path)
    config = TrainConfig.load(path / "config.toml")
    if finished:
        result = Result.from_kept(path, finished)
    else:
        result = Result.so_far(path, records, start, config.steps, UNFINISHED)
    write_report(path, config, result, records)
    return path / "report.html"


def _lead(result: Result, records: Sequence[Mapping[str, Any]], best: str | None) -> list[str]:
    episodes = sum(r.get("episodes", 0) for r in records)
    tokens = sum(r.get("action_tokens", 0) for r in records)
    lead = [
        *([result.verdict] if result.verdict else []),
        f"{result.steps} optimiser steps, {episodes:,} episodes, {tokens:,} trained tokens "
        f"in {duration(result.seconds)}.",
        _published(result, best),
    ]
    if result.stopped == UNFINISHED:
        return [*lead, f"This run has {UNFINISHED}: it is still running, or was stopped and can be resumed."]
    return lead + ([f"Stopped early: {result.stopped}"] if result.stopped else [])


def _published(result: Result, best: str | None) -> str:
    """Which weights are published and why; where the best ones by `best` (see `eval.best`) are."""
    names = {"average": "the weight average", "last": "the last weights"}
    name, why = names.get(result.published), result.published_why
    if name is None:
        return f"Published: {result.published}."
    told = f"Published: {name}"
    told += f", the better by {why}." if ":" in why else f"; {why}." if why else "."
    if result.best:
        told += f" The best of all evaluations, after step {int(result.best['step'])}, is kept in best/"
        chosen = {n for n in result.best if best in (n, ".".join(n.rsplit("/", 1)))} or {next(iter(result.best))}
        played = any(f"{name}_low" in result.best for name in chosen)
        told += ": it was chosen by a sampled number, which is biased in its favour." if played else "."
    return told


def _heads(result: Result) -> list[str]:
    """The columns of the summary; the published weights are marked."""
    heads = {"": "", "before": "before", "last": "last", "average": "weight average", "best": "best"}
    return [f"{head} (published)" if name == result.published else head for name, head in heads.items()]


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `2 h 7 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _heat_maps(league: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(file name, svg, note) of the league's matrices."""
    out = []
    for number, payoffs in enumerate(league.get("payoffs") or ()):
        names = payoffs["names"]
        shares = [f"{name} {payoffs['mixture'][name]:.0%}" for name in names]
        unit = "row in the first seat; half the difference of both returns"
        title = "Payoffs between members" + (f", {payoffs['env']}" if payoffs["env"] else "")
        svg = heat_map(title, unit, shares, names, payoffs["matrix"])
        note = "Per cent: the member's weight in the meta-Nash mixture of both seats."
        out.append((f"payoffs_{number}" if number else "payoffs", svg, note))
    if league.get("win_rates"):
        members = [f"{name} ({games})" for name, games in zip(league["members"], league["games"])]
        unit, seats, rates = "win rate over the whole run, a draw counts half", league["seats"], league["win_rates"]
        title = "Learners against each other and members" if league.get("learners") else "The learner against members"
        svg = heat_map(title, unit, members, seats, rates, middle=0.5, reach=0.5)
        out.append(("against", svg, "Columns: the learner's seat; in brackets: games."))
    return out


def _ratings(league: Mapping[str, Any]) -> str:
    ratings = sorted((league.get("ratings") or {}).items(), key=lambda item: -item[1][0])
    rows = [[name, f"{mu:.2f}", f"{mu - Z95 * sigma:.2f} to {mu + Z95 * sigma:.2f}"] for name, (mu, sigma) in ratings]
    return table(["player", "OpenSkill mu", "95 % interval (mu ± 1.96 sigma)"], rows, numeric=True)


def _alarms(records: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [str(r["step"]), a["name"], f"{a['value']:.4g}", f"{a['limit']:.4g}", a["text"], a.get("done", "")]
        for r in records
        for a in r.get("alarms") or ()
    ]
    return table(["step", "alarm", "value", "limit", "what it means", "what was done"], rows)


def _settings(config: TrainConfig) -> str:
    text = escape(to_toml(config.model_copy(update={"run_dir": None})))
    own = table(["setting", "this run", "default"], changed(config)) or "<p>All settings have their defaults.</p>"
    return f"{own}<details><summary>all settings</summary><pre>{text}</pre></details>"
