"""What is debated when nothing is given: motions, and cases of a principle and a response with their label.

They come from `data/debate.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Example(NamedTuple):
    """A principle, a response to somebody, and whether the response violates the principle (None: not known)."""

    principle: str
    response: str
    violates: bool | None = None


_DATA = tomllib.loads((Path(__file__).with_name("data") / "debate.toml").read_text(encoding="utf-8"))
TOPICS = tuple(_DATA["topics"])
CASES = tuple(Example(row["text"], *response) for row in _DATA["principle"] for response in row["responses"])
