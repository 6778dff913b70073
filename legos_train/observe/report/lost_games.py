"""Sample games of a run, before and after: the first and the last step that rollouts.jsonl has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from legos_train.observe.viewer.compact import turn_order

GAMES, CHARACTERS, TURNS = 3, 1200, 24
_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def sample_games(path: Path, most: int = GAMES) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first `most` games of the first step and of the last; the second list is empty with one step only.

    Reads the file once and keeps no more than that. A missing file has no games; a line that is no row is left out.
    """
    first: list[bytes] = []
    last: list[bytes] = []
    steps: list[int] = []
    if not path.exists():
        return [], []
    with path.open("rb") as file:
        for line in file:
            match = _STEP.match(line)
            if match is None or not line.endswith(b"\n"):
                continue
            step = int(match[1])
            if not steps or step != steps[-1]:
                steps.append(step)
                last = []
            kept = first if len(steps) == 1 else last
            if len(kept) < most:
                kept.append(line)
    return [json.loads(line) for line in first], [json.loads(line) for line in last]


def games_html(title: str, games: Sequence[Mapping[str, Any]]) -> str:
    """A column of games; all text that a model wrote is escaped."""
    step = f" (step {games[0]['step']})" if games else ""
    return f"<div><h3>{escape(title + step)}</h3>{''.join(map(_game, games))}</div>"


def _game(line: Mapping[str, Any]) -> str:
    episode = line["episode"]
    trajectories = episode["trajectories"]
    out = [f"<article><p class=soft>{escape(str(line['env']))}, seed {int(episode['seed'])}</p>"]
    for shown, (seat, number) in enumerate(turn_order(trajectories, line.get("order"))):
        agent, turn = trajectories[seat]["agent"], trajectories[seat]["turns"][number]
        if shown == TURNS:
            out.append("<p class=soft>and more turns; `legos view` shows all</p>")
            break
        messages = "\n\n".join(
            str(m.get("content", "")) for m in turn.get("observation", ()) if m.get("role") != "assistant"
        )
        if number == 0:
            out.append(
                f"<details><summary>what {escape(agent)} is told</summary><pre>{escape(_cut(messages))}</pre></details>"
            )
        player = line.get("players", {}).get(agent, "policy")
        who = escape(agent) + ("" if player == "policy" else f" <span class=soft>({escape(str(player))})</span>")
        legal = turn.get("legal_actions")
        wrong = " <span class=bad>not legal</span>" if legal and turn["action"] not in legal else ""
        out.append(f"<p class=turn><b>{who}</b> <q>{escape(_cut(str(turn['action'])))}</q>{wrong}</p>")
    ends = []
    for trajectory in trajectories:
        agent = trajectory["agent"]
        total = trajectory.get("carry", 0.0) + sum(t.get("reward", 0.0) for t in trajectory["turns"])
        ended = line.get("outcome", {}).get(agent)
        ends.append(f"{escape(agent)} <b>{total:+g}</b>" + (f" {escape(str(ended))}" if ended else ""))
    return "".join(out) + f"<p class=ends>{' · '.join(ends)}</p></article>"


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]} …"
