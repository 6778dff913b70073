"""Which of TextArena's games are registered, and why the others are not. Cheap: TextArena itself is not imported.

`textarena/games.json` is written by `python docs/survey_textarena.py`, which plays them all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

NAMESPACE = "TextArena"
_FILE = Path(__file__).with_name("games.json")


class Facts(NamedTuple):
    """What the survey found out about a game."""

    least: int
    most: int
    step: int
    turns: int
    """The longest of some random episodes."""
    zero_sum: bool
    python: int = 11
    """The minor version of Python 3 that its source needs."""

    @property
    def players(self) -> range:
        """The numbers of players it takes."""
        return range(self.least, self.most + 1, self.step)

    @property
    def max_turns(self) -> int:
        """A generous limit for the least number of players."""
        return max(200, 4 * self.turns)


_found = json.loads(_FILE.read_text())
GAMES: dict[str, Facts] = {game: Facts(*facts) for game, facts in _found["games"].items()}
"""The games that play, by TextArena's id."""
REFUSED: dict[str, str] = _found["refused"]
"""Why a game does not."""


def env_id(game: str) -> str:
    """The id of a game here: `TextArena/KuhnPoker-v0`. (One of TextArena's has a slash, which no id may have.)"""
    return f"{NAMESPACE}/{game.replace('/', '-')}"


def refusal(game: str) -> str | None:
    """Why a game cannot be made here, or None."""
    facts = GAMES.get(game)
    if facts is not None and sys.version_info < (3, facts.python):
        return f"its source needs Python 3.{facts.python}"
    return REFUSED.get(game)
