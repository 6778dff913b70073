"""Sample games of a run, before and after: the first and the last step that rollouts.jsonl has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

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
            found = _STEP.match(line)
            if found is None or not line.endswith(b"\n"):
                continue
            step = int(found[1])
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
    trajectories = {t["agent"]: t for t in episode["trajectories"]}
    out = [f"<article><p class=soft>{escape(str(line['env']))}, seed {int(episode['seed'])}</p>"]
    for shown, (agent, turn, number) in enumerate(_turns(trajectories, line.get("order"))):
        if shown == TURNS:
            out.append("<p class=soft>and more turns; `legos view` shows all</p>")
            break
        told = "\n\n".join(
            str(m.get("content", "")) for m in turn.get("observation", ()) if m.get("role") != "assistant"
        )
        if number == 0:
            out.append(
                f"<details><summary>what {escape(agent)} is told</summary><pre>{escape(_cut(told))}</pre></details>"
            )
        player = line.get("players", {}).get(agent, "policy")
        who = escape(agent) + ("" if player == "policy" else f" <span class=soft>({escape(str(player))})</span>")
        legal = turn.get("legal_actions")
        wrong = " <span class=bad>not legal</span>" if legal and turn["action"] not in legal else ""
        out.append(f"<p class=turn><b>{who}</b> <q>{escape(_cut(str(turn['action'])))}</q>{wrong}</p>")
    ends = []
    for agent, trajectory in trajectories.items():
        total = trajectory.get("carry", 0.0) + sum(t.get("reward", 0.0) for t in trajectory["turns"])
        ended = line.get("outcome", {}).get(agent)
        ends.append(f"{escape(agent)} <b>{total:+g}</b>" + (f" {escape(str(ended))}" if ended else ""))
    return "".join(out) + f"<p class=ends>{' · '.join(ends)}</p></article>"


def _turns(
    trajectories: Mapping[str, Mapping[str, Any]], order: Sequence[str] | None
) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """(agent, turn, its number) in the order of play where the log has it, else all first turns, then all second."""
    if order is None:
        rounds = zip_longest(*([(agent, k) for k in range(len(t["turns"]))] for agent, t in trajectories.items()))
        for agent, k in [entry for each in rounds for entry in each if entry is not None]:
            yield agent, trajectories[agent]["turns"][k], k
        return
    seen: dict[str, int] = {}
    for agent in order:
        k = seen[agent] = seen.get(agent, -1) + 1
        yield agent, trajectories[agent]["turns"][k], k


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]} …"
