"""The registered games of TextArena, and why the others are not registered. Does not import TextArena itself.

`python docs/survey_textarena.py`, which plays them all, writes `textarena/games.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

NAMESPACE = "TextArena"
_FILE = Path(__file__).with_name("games.json")


class Facts(NamedTuple):
    """The survey's results on a game."""

    least: int
    most: int
    step: int
    turns: int
    """Length of the longest of some random episodes."""
    zero_sum: bool
    python: int = 11
    """Minor version of Python 3 that its source requires."""

    @property
    def players(self) -> range:
        """The supported numbers of players."""
        return range(self.least, self.most + 1, self.step)

    @property
    def max_turns(self) -> int:
        """A generous limit for the minimum number of players."""
        return max(200, 4 * self.turns)


_found = json.loads(_FILE.read_text())
GAMES: dict[str, Facts] = {game: Facts(*facts) for game, facts in _found["games"].items()}
"""The playable games, by TextArena's id."""
REFUSED: dict[str, str] = _found["refused"]
"""Why a game is not playable."""


def env_id(game: str) -> str:
    """The id of a game here: `TextArena/KuhnPoker-v0`. (One of TextArena's has a slash, which ids must not contain.)"""
    return f"{NAMESPACE}/{game.replace('/', '-')}"


def refusal(game: str) -> str | None:
    """Why a game cannot be created here, or None."""
    facts = GAMES.get(game)
    if facts is not None and sys.version_info < (3, facts.python):
        return f"its source needs Python 3.{facts.python}"
    return REFUSED.get(game)
