"""The numbers of an evaluation, a tournament or `legos exploit`, as the page shows them: from `results.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROW = ("env", "policy", "opponent", "games", "mean", "ci95", "success", "win", "draw", "loss", "invalid")
RATING = ("elo", "ci95", "score", "games")
EXPLOIT = ("env", "policy", "exact", "nash_conv", "loss_per_game", "responder", "answers", "exploiter")
LEAK = ("seat", "view", "move", "played", "at_most", "instead", "cost", "asked")
INFOSET = ("seat", "view", "asked", "played", "exploiter")
MOST_INFOSETS = 500


def read_results(folder: Path) -> dict[str, Any] | None:
    """`rows` (one per policy, opponent and env), `ratings` (by name) and `exploit` (the result of `legos exploit`, else
    None); None if there is no such file.

    During an evaluation the file is missing or from an earlier one; a file that is not JSON counts as missing.
    """
    path = folder / "results.json"
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        return None
    if not isinstance(data, Mapping):
        return None
    rows = data.get("results") or data.get("rows") or []
    by_name = data.get("ratings")
    ratings = by_name if isinstance(by_name, Mapping) else {}
    return {
        "rows": [_row(row) for row in rows if isinstance(row, Mapping)],
        "ratings": [
            {"name": name, **{key: one.get(key) for key in RATING}}
            for name, one in ratings.items()
            if isinstance(one, Mapping)
        ],
        "exploit": _exploit(data.get("exploit")),
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The page's data of a pairing. Without competition a win is a success, and nothing is drawn or lost; a policy that
    plays alone has no opponent; an interval without width is not informative.
    """
    told = dict(row)
    if row.get("competitive") is False:
        told |= {"success": row.get("win"), "win": None, "draw": None, "loss": None}
    if row.get("alone"):
        told["opponent"] = None
    if isinstance(ends := row.get("ci95"), list) and len(ends) == 2 and ends[0] == ends[1]:
        told["ci95"] = None
    return {key: told.get(key) for key in ROW}


def _exploit(found: Any) -> dict[str, Any] | None:
    """The page's data of an examination; for large games only the information sets that were asked most."""
    if not isinstance(found, Mapping):
        return None
    leaks, infosets = (
        [one for one in value if isinstance(one, Mapping)] if isinstance(value := found.get(name), list) else []
        for name in ("leaks", "infosets")
    )
    most = sorted(infosets, key=lambda one: -one["asked"] if isinstance(one.get("asked"), int) else 0)[:MOST_INFOSETS]
    return {
        **{key: found.get(key) for key in EXPLOIT},
        "leaks": [{key: one.get(key) for key in LEAK} for one in leaks],
        "infosets": [{key: one.get(key) for key in INFOSET} for one in most],
    }
