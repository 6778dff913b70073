"""Sample games of a run, before and after: from the first and the last step in rollouts.jsonl."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from legos_train.observe.viewer.compact import turn_order

GAMES, CHARACTERS, TURNS = 3, 1200, 24
CANDIDATES = 24
"""Number of a step's games searched for distinct ones."""
DEAL = 160
"""Maximum characters of a seat's private observation at the top of a game."""
Shared = Mapping[tuple[str, str], frozenset[str]]
_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def sample_games(path: Path, most: int = GAMES) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first `most` games of the first step and of the last; the second list is empty if there is only one step. A
    game that repeats an earlier one, in deal and actions, is skipped.

    Reads the file once and keeps only these. A missing file has no games; lines that are not rows are skipped.
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
            if len(kept) < CANDIDATES:
                kept.append(line)
    return _different(first, most), _different(last, most)


def _different(lines: Sequence[bytes], most: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        game = json.loads(line)
        if not isinstance(game.get("episode"), dict):
            continue
        played = [[messages_of(turn), turn["action"]] for t in game["episode"]["trajectories"] for turn in t["turns"]]
        found.setdefault(json.dumps([game["env"], played]), game)
        if len(found) == most:
            break
    return list(found.values())


def shared_lines(games: Sequence[Mapping[str, Any]]) -> Shared:
    """By env and agent, the lines of its first observation that all games share: rules, not the deal."""
    told: dict[tuple[str, str], list[frozenset[str]]] = {}
    for game in games:
        for agent, lines in _first_told(game).items():
            told.setdefault((str(game["env"]), agent), []).append(frozenset(lines))
    return {key: frozenset.intersection(*lines) for key, lines in told.items()}


def _first_told(game: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        t["agent"]: [line.strip() for line in messages_of(t["turns"][0]).splitlines() if line.strip()]
        for t in game["episode"]["trajectories"]
        if t["turns"]
    }


def messages_of(turn: Mapping[str, Any]) -> str:
    """The messages to a seat before a turn, as one text."""
    observation = turn.get("observation", ())
    return "\n\n".join(str(m.get("content", "")) for m in observation if m.get("role") != "assistant")


def games_html(title: str, games: Sequence[Mapping[str, Any]], shared: Shared | None = None) -> str:
    """A column of games; all text that a model wrote is escaped. Each starts with the lines that are not `shared`."""
    step = f" (step {games[0]['step']})" if games else ""
    return f"<div><h3>{escape(title + step)}</h3>{''.join(_game(game, shared or {}) for game in games)}</div>"


def _game(line: Mapping[str, Any], shared: Shared) -> str:
    episode = line["episode"]
    trajectories = episode["trajectories"]
    out = [f"<article><p class=soft>{escape(str(line['env']))}, seed {int(episode['seed'])}</p>"]
    for agent, told in _first_told(line).items():
        common = shared.get((str(line["env"]), agent))
        if common is not None and (own := [text for text in told if text not in common]):
            text = " · ".join(own)
            text = text if len(text) <= DEAL else f"{text[:DEAL]} …"
            out.append(f"<p class=deal><b>{escape(agent)}</b> sees <q>{escape(text)}</q></p>")
    for shown, (seat, number) in enumerate(turn_order(trajectories, line.get("order"))):
        agent, turn = trajectories[seat]["agent"], trajectories[seat]["turns"][number]
        if shown == TURNS:
            out.append("<p class=soft>and more turns; `legos view` shows all</p>")
            break
        messages = messages_of(turn)
        if number == 0:
            out.append(
                f"<details><summary>what {escape(agent)} sees</summary><pre>{escape(_cut(messages))}</pre></details>"
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
