"""Tic-tac-toe on a 3 by 3 board: 4,520 decision points, a draw under perfect play. The text shows one word per cell in
fixed positions, which even a small model can read. Perfect play is known for every position, so a policy can be
measured exactly.

| | |
|---|---|
| seats | `player_0` (X, begins), `player_1` (O) |
| horizon | 5 to 9 turns |
| sum of rewards | 0 |

## What each seat is told

The rules, its mark, and the board: nine words, the cell's number for a free cell and `X` or `O` for a taken one.
Nothing is hidden.

## Actions

The number of a free cell, such as `[5]`.

## Rewards

+1 to the player with three in a row, column or diagonal, -1 to the other; 0 to both for a draw.

## End

When a player has three in a line, or the board is full.

## Scripted players

`optimal` chooses uniformly among the moves that keep the value of the game; `scripted:greedy` completes a line, else
blocks one, else takes the centre, a corner or an edge, in this order. All returns are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=optimal` | `player_0 +0.0000, player_1 +0.0000` | | `0` |
| `*=random` | `player_0 +0.2968, player_1 -0.2968` | |
| `player_0=random player_1=optimal` | `player_0 -0.7775, player_1 +0.7775` | |
| `player_0=scripted:greedy player_1=random` | `player_0 +0.9635, player_1 -0.9635` | |
| `player_0=optimal player_1=scripted:greedy` | `player_0 +0.2037, player_1 -0.2037` | |

## Source

A folk game. There are 255,168 possible games and 5,478 positions; the tests count both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from legos_envs import arguments
from legos_envs.game import ExactPolicy, GameEnv, InfoSet, State
from legos_envs.spaces import Numbers, last
from legos_envs.table import Seat, Table

MARKS = "XO"
EMPTY = "_"
CELLS = tuple("123456789")
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@dataclass(frozen=True)
class TicTacToeGame:
    """Tic-tac-toe; a state is the board as nine characters. The winner gets 1, the loser -1, both 0 for a draw."""

    num_players = 2

    def initial(self) -> list[tuple[float, State]]:
        return [(1.0, EMPTY * 9)]

    def player(self, state: str) -> int | None:
        left = state.count(EMPTY)
        return None if left == 0 or self.winner(state) is not None else (9 - left) % 2

    def winner(self, state: str) -> int | None:
        """The player with three in a line, if any."""
        for a, b, c in LINES:
            if state[a] == state[b] == state[c] != EMPTY:
                return MARKS.index(state[a])
        return None

    def legal(self, state: str) -> tuple[str, ...]:
        return tuple([cell for cell, mark in zip(CELLS, state) if mark == EMPTY])

    def next(self, state: str, move: str) -> str:
        i = int(move) - 1
        return state[:i] + MARKS[(9 - state.count(EMPTY)) % 2] + state[i + 1 :]

    def returns(self, state: str) -> tuple[float, float]:
        winner = self.winner(state)
        return (0.0, 0.0) if winner is None else (1.0, -1.0) if winner == 0 else (-1.0, 1.0)

    def rules(self, player: int) -> str:
        return (
            "Tic-tac-toe. Players in turn mark a free cell. Free cells show their number; "
            "rows are 1 2 3, 4 5 6, 7 8 9. Three own marks in a row, column or diagonal win."
        )

    def view(self, state: str, player: int) -> str:
        shown = " ".join([cell if mark == EMPTY else mark for cell, mark in zip(CELLS, state)])
        return f"You are {MARKS[player]}. Board: {shown}"

    @property
    def scripted(self) -> dict[str, ExactPolicy]:
        """Players that follow a rule of thumb."""
        return {"greedy": greedy}


def greedy(infoset: InfoSet) -> dict[str, float]:
    """Completes its own line, else blocks the opponent's, else takes the centre, a corner or an edge, in this order."""
    board = infoset.view.partition("Board: ")[2].split()
    for mark in (MARKS[infoset.player], MARKS[1 - infoset.player]):
        for line in LINES:
            marks = [board[i] for i in line]
            free = [cell for cell in marks if cell in CELLS]
            if marks.count(mark) == 2 and free:
                return {free[0]: 1.0}
    return {next(cell for cell in "513792468" if cell in infoset.legal): 1.0}


class TicTacToe(GameEnv):
    """Tic-tac-toe for two players: `player_0` plays X and begins. Actions are the numbers of the cells.

    Args:
        random_opening: episodes begin after 0 to this many (at most 4) uniformly random moves, which exposes a learner
            to positions that its own play would never reach (exploring starts).

    Raises:
        ValueError: `random_opening` is out of range; or, at `reset`, the option `moves` is not a legal opening.
    """

    name = "TicTacToe-v0"
    replayable = True
    view_shows_moves = True
    zero_sum = True
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    max_asks = 9
    game = TicTacToeGame()
    reset_options = {"moves": "opening moves that are already played, such as ['5', '1'] or '51'"}

    def __init__(self, random_opening: int = 0, **kwargs: Any):
        self.random_opening = arguments.whole("random_opening", random_opening, 0, 4)
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """The board as two planes of nine: own marks, then the opponent's."""

        def read(text: str) -> list[float]:
            own = last("You are ([XO])", text)
            board = last("Board: (.*)", text).split() or [EMPTY] * 9
            return [float(mark in MARKS and (mark == own) == mine) for mine in (True, False) for mark in board]

        return Numbers(CELLS, tuple(f"{whose} {cell}" for whose in ("own", "other") for cell in CELLS), read)

    def deal(self, table: Table) -> State:
        state = EMPTY * 9
        moves = table.options.get("moves")
        if moves is None and self.random_opening:
            # Nobody can have three in a row before the fifth move, so an opening never ends the game.
            moves = table.rng.permutation(list(CELLS))[: table.rng.integers(self.random_opening + 1)].tolist()
        moves = () if moves is None else moves
        if not isinstance(moves, (str, list, tuple)):
            raise ValueError(f"option moves must be a list of cells, such as ['5', '1']; got {moves!r}")
        for move in moves:
            if self.game.player(state) is None or str(move) not in self.game.legal(state):
                raise ValueError(f"option moves: {move!r} is not legal on board {state!r}; got {moves!r}")
            state = self.game.next(state, str(move))
        if self.game.player(state) is None:
            raise ValueError(f"option moves ends the game: nothing is left to play after {moves!r}")
        return state
