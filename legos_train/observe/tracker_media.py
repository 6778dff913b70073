"""What trackers get besides numbers: sample episodes as rows of a table, and the figures of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legos_train.disk import MetricsFile, RunDirectory
from legos_train.observe.report.figures import figures
from legos_train.observe.report.lost_games import sample_games
from legos_train.observe.report.svg import line_chart, standalone
from legos_train.observe.viewer import LOG
from legos_train.observe.viewer.compact import turn_order

COLUMNS = ("step", "game", "env", "seed", "agent", "player", "told", "action", "reward", "outcome")
GAMES, CHARACTERS = 16, 4000
"""Games of the first and of the last step; characters of a text."""


def episode_rows(path: Path) -> list[list[Any]]:
    """A row for each turn, in the order of play, of games of the first and the last step in a run's log: `COLUMNS`."""
    rows: list[list[Any]] = []
    for number, line in enumerate(game for games in sample_games(path / LOG, GAMES) for game in games):
        seats = line["episode"]["trajectories"]
        for seat, turn in turn_order(seats, line.get("order")):
            agent, taken = seats[seat]["agent"], seats[seat]["turns"][turn]
            told = [str(m.get("content", "")) for m in taken.get("observation", ()) if m.get("role") != "assistant"]
            who, ended = line.get("players", {}).get(agent, ""), line.get("outcome", {}).get(agent, "")
            texts = ("\n\n".join(told)[:CHARACTERS], str(taken["action"])[:CHARACTERS])
            facts = (line["step"], number, str(line["env"]), line["episode"].get("seed"), agent, str(who))
            rows.append([*facts, *texts, float(taken.get("reward") or 0.0), str(ended)])
    return rows


def figure_files(path: Path) -> dict[str, str]:
    """The figures of a run as they are now, by name: SVG files as text."""
    if not (file := path / "metrics.jsonl").exists():
        return {}
    drawn = figures(MetricsFile.read(file), RunDirectory(path).first_numbers())
    return {figure.name: standalone(line_chart(figure)) for figure in drawn}
