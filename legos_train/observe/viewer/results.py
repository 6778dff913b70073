"""The numbers of an evaluation or a tournament, as the page shows them: from `results.json` beside the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROW = ("env", "policy", "opponent", "games", "mean", "ci95", "win", "draw", "loss", "invalid")
RATING = ("elo", "ci95", "score", "games")


def read_results(folder: Path) -> dict[str, Any] | None:
    """`rows` (one per policy, opponent and env) and `ratings` (by name); None where there is no such file.

    While an evaluation goes on there is none, or that of the last time; a file that is no JSON counts as none.
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
        "rows": [{key: row.get(key) for key in ROW} for row in rows if isinstance(row, Mapping)],
        "ratings": [
            {"name": name, **{key: one.get(key) for key in RATING}}
            for name, one in ratings.items()
            if isinstance(one, Mapping)
        ],
    }
