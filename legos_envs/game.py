"""Games that can be solved: pure rules (`Game`), and the environment that plays them (`GameEnv`).

The env and the solvers in `legos_envs.exact` read the same `Game`, so they cannot disagree about the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from legos_envs import parsing
from legos_envs.table import Rules, Table
from legos_envs.text_env import TextEnv

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


class GameEnv(TextEnv):
    """Base class of environments whose rules are a `Game`: the subclass sets `self.game` and its seats."""

    default_memory = "state"
    view_shows_moves = False
    """Whether views name the legal moves, so that prompts need no list of them (prompts stay short and uniform)."""
    game: Game
    _deals: list[tuple[float, State]] | None = None

    def deal(self, table: Table) -> State:
        """Draws one of the game's initial states."""
        deals = self._deals = self._deals or self.game.initial()
        if len(deals) == 1:
            return deals[0][1]
        draw, total = table.random(), 0.0
        for chance, state in deals:
            total += chance
            if draw < total:
                return state
        return deals[-1][1]

    def play(self, table: Table) -> Rules[tuple[float, ...]]:
        game = self.game
        for i, agent in enumerate(self.possible_agents):
            table.tell(agent, self.rules_text(i))
        state = self.deal(table)
        while (player := game.player(state)) is not None:
            move = yield from table.ask(
                self.possible_agents[player],
                game.view(state, player),
                legal=game.legal(state),
                listed=not self.view_shows_moves,
            )
            state = game.next(state, move)
        returns = game.returns(state)
        for agent, value in zip(self.possible_agents, returns, strict=True):
            table.reward(agent, value)
        return returns

    def rules_text(self, player: int) -> str:
        """The text shown to a player at the start: the rules, and how to answer if prompts do not list the moves."""
        if not self.view_shows_moves:
            return self.game.rules(player)
        return f"{self.game.rules(player)} Reply with your move as {parsing.write_action('move', self.action_format)}."

    def observation_in(self, infoset: InfoSet) -> dict[str, tuple[dict[str, str], ...]]:
        """The observation of the player to move in this information set, with `memory="state"`."""
        written = None if self.view_shows_moves else self._written(infoset.legal)
        text = self._prompt(self.rules_text(infoset.player), infoset.view, None, written)
        return {"messages": ({"role": "user", "content": text},)}
