"""The basis of this package's modules: a table of games, and the lookup of a game's legal actions in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

MOST = 64
LONGER = {"SantoriniBaseFixedWorkerEnv": 128}
"""Limits for games in which an action is hard to find without the list."""

Moves = Iterable[str] | None
_OF: dict[str, Callable[[Any], Moves]] = {}


def moves(game: Any) -> tuple[str, ...] | None:
    """The legal actions of the player to move; None if they are not listed, `()` if there are none."""
    listing = _OF.get(type(game).__name__)
    result = None if listing is None else listing(game)
    if result is None:
        return None
    names = tuple(result)
    return names if len(names) <= LONGER.get(type(game).__name__, MOST) else None


def listed(*classes: str) -> Callable[[Callable[[Any], Moves]], Callable[[Any], Moves]]:
    """Registers a function that lists the legal actions of TextArena's `classes`."""

    def add(listing: Callable[[Any], Moves]) -> Callable[[Any], Moves]:
        _OF.update(dict.fromkeys(classes, listing))
        return listing

    return add


def state_of(game: Any) -> Any:
    """A game's own state."""
    return game.state.game_state


def inside(r: int, c: int, size: int) -> bool:
    """Whether a cell is on a square board."""
    return 0 <= r < size and 0 <= c < size
