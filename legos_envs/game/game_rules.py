"""Rules of a game as pure functions, without an environment: what `GameEnv` plays and `legos_envs.exact` solves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

State = Any


class Game(Protocol):
    """Rules as pure functions of a hashable state. Players are numbered from 0; moves are words.

    A game may also have `nash(infoset)`, a known equilibrium; `scripted`, policies over information sets by name; and
    `solvable`, False if it has too many states to enumerate, in which case solvers refuse it at once.
    """

    num_players: int

    def initial(self) -> list[tuple[float, State]]:
        """The states after chance has dealt, each with its probability."""

    def player(self, state: State) -> int | None:
        """Who moves, or None at the end."""

    def legal(self, state: State) -> tuple[str, ...]:
        """The moves of the player to move."""

    def next(self, state: State, move: str) -> State:
        """The state after a move."""

    def returns(self, state: State) -> tuple[float, ...]:
        """Each player's return at the end."""

    def rules(self, player: int) -> str:
        """The rules, as shown to a player at the start."""

    def view(self, state: State, player: int) -> str:
        """Everything a player knows in a state, as text. States with equal views form one information set."""


class InfoSet(NamedTuple):
    """A player's knowledge when it is its turn, and its legal moves."""

    player: int
    view: str
    legal: tuple[str, ...]


def info_set(game: Game, state: State) -> InfoSet:
    """The information set of the player to move."""
    player = game.player(state)
    if player is None:
        raise ValueError(f"the game is over in state {state!r}: there is no player to move")
    return InfoSet(player, game.view(state, player), game.legal(state))


ExactPolicy = Callable[[InfoSet], Mapping[str, float]]
"""The probabilities of the legal moves, by name, in an information set. Moves left out have probability 0."""

MAX_STATES = 1_000_000
"""Maximum size of games that can be solved: `legos_envs.exact` refuses those with more states."""
