"""What a module of this package is made of: a table of games, and how a game's legal actions are found in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

MOST = 64
LONGER = {"SantoriniBaseFixedWorkerEnv": 128}
"""Where an action is hard to find without the list."""

Moves = Iterable[str] | None
_OF: dict[str, Callable[[Any], Moves]] = {}


def moves(game: Any) -> tuple[str, ...] | None:
    """The legal actions of the player to move; None where they are not listed, `()` where there are none."""
    listing = _OF.get(type(game).__name__)
    result = None if listing is None else listing(game)
    if result is None:
        return None
    names = tuple(result)
    return names if len(names) <= LONGER.get(type(game).__name__, MOST) else None


def listed(*classes: str) -> Callable[[Callable[[Any], Moves]], Callable[[Any], Moves]]:
    """Makes a function the list of the legal actions of TextArena's `classes`."""

    def add(listing: Callable[[Any], Moves]) -> Callable[[Any], Moves]:
        _OF.update(dict.fromkeys(classes, listing))
        return listing

    return add


def state_of(game: Any) -> Any:
    """What a game keeps of itself."""
    return game.state.game_state


def inside(r: int, c: int, size: int) -> bool:
    """Whether a cell is on a square board."""
    return 0 <= r < size and 0 <= c < size
