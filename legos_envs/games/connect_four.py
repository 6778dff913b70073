"""Connect four: marks drop into the columns of an upright board, and four in a row win. The text shows one word per
cell in fixed positions. The board size is an argument: small boards are solved exactly, and on every board alpha-beta
players of several depths provide opponents of graded strength.

| | |
|---|---|
| seats | `player_0` (X, begins), `player_1` (O) |
| horizon | 7 to 42 turns; about 21 in random play |
| sum of rewards | 0 |

## What each seat is told

The rules, its mark, the columns with room, and the board from the top down: `X`, `O`, or `_` for a free cell. Nothing
is hidden.

## Actions

The number of a column with room, such as `[4]`. Columns are numbered from the left, starting at 1.

## Rewards

+1 to the player with four in a row, column or diagonal, -1 to the other; 0 to both when the board fills up.

## End

When a player has four in a line, or the board is full.

## Scripted players

`scripted:depth_1`, `depth_2`, `depth_4` and `depth_6` search that many plies by alpha-beta and choose uniformly among
the moves that look equally good: depth 1 takes a win, depth 2 also blocks one, depth 4 sees a double threat. They take
about 0.1, 0.4, 6 and 40 ms per move. `optimal` is available on boards of at most 16 cells. On the full board the first
player wins under perfect play (Allis, 1988).

Returns on the full board are means over 20,000 games of random play and 3,000 games of the others (standard errors
0.007 to 0.009); those on small boards are exact. Over 400 games, `depth_4` averaged 0.975 +- 0.022 against `random` as
the first player and 0.943 +- 0.033 as the second (95 % intervals).

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=random` | `player_0 +0.120, player_1 -0.120` | |
| `player_0=scripted:depth_2 player_1=random` | `player_0 +0.915, player_1 -0.915` | |
| `player_0=random player_1=scripted:depth_2` | `player_0 -0.875, player_1 +0.875` | |
| `player_0=optimal player_1=random` | `player_0 +1.0, player_1 -1.0` | `rows=3, columns=4, connect=3` |
| `player_0=random player_1=optimal` | `player_0 -0.4441, player_1 +0.4441` | `rows=3, columns=4, connect=3` |
| `player_0=scripted:depth_4 *=scripted:depth_2` | `player_0 +0.6908` | `rows=3, columns=4, connect=3` | `player_0 0` |
| `*=optimal` | `player_0 +0.0, player_1 -0.0` | `rows=3, columns=3, connect=3` | `0` |

## Source

Milton Bradley, 1974. V. Allis, "A knowledge-based approach of Connect-Four", Vrije Universiteit Amsterdam, 1988. The
number of positions after each move is checked against OEIS A212693.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from legos_envs import arguments
from legos_envs.game import GameEnv, State
from legos_envs.games.connect_four_board import ConnectFourGame
from legos_envs.play import Decision
from legos_envs.spaces import Numbers, last
from legos_envs.table import Seat, Table

DEPTHS = (1, 2, 4, 6)


class ConnectFour(GameEnv):
    """Connect four for two players: `player_0` plays X and begins. Actions are the numbers of the columns.

    Args:
        rows: height of the board, 1 to 10.
        columns: width of the board, 1 to 10.
        connect: number in a line that wins, from 2 to the longer side of the board.
        random_opening: episodes begin after 0 to this many uniformly random moves. It must be small enough that no
            opening can win or fill the board: at most `2 * connect - 2` on all but tiny boards.

    Raises:
        ValueError: an argument is out of range; or, at `reset`, the option `moves` is not a legal opening.
    """

    name = "ConnectFour-v0"
    replayable = True
    view_shows_moves = True
    zero_sum = True
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    reset_options = {"moves": "opening moves that are already played, such as ['4', '4'] or '44'"}

    def __init__(self, rows: int = 6, columns: int = 7, connect: int = 4, random_opening: int = 0, **kwargs: Any):
        rows, columns = arguments.whole("rows", rows, 1, 10), arguments.whole("columns", columns, 1, 10)
        connect = arguments.whole("connect", connect, 2, max(rows, columns))
        most = min(2 * connect - 2, rows * columns - 1)
        self.random_opening = arguments.whole("random_opening", random_opening, 0, most)
        self.game: ConnectFourGame = ConnectFourGame(rows, columns, connect)
        self.scripted_players = {  # type: ignore[misc]  # a class attribute elsewhere; here they depend on the board
            f"depth_{depth}": partial(_play_to_depth, self.game, depth) for depth in DEPTHS
        }
        self.max_asks = rows * columns
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """The board as two planes, own marks then the opponent's; each goes column by column, from the bottom up."""
        rows, columns = self.game.rows, self.game.columns
        cells = [1 << column * (rows + 1) + row for column in range(columns) for row in range(rows)]

        def read(text: str) -> list[float]:
            board, own = self.game.read(text) or (0, 0), int(last("You are ([XO])", text) == "O")
            return [float(bool(board[player] & cell)) for player in (own, 1 - own) for cell in cells]

        moves = tuple(str(column + 1) for column in range(columns))
        names = [f"{whose} {move} {row + 1}" for whose in ("own", "other") for move in moves for row in range(rows)]
        return Numbers(moves, tuple(names), read)

    def deal(self, table: Table) -> State:
        state, moves = (0, 0), table.options.get("moves")
        if moves is None:
            for _ in range(int(table.rng.integers(self.random_opening + 1)) if self.random_opening else 0):
                legal = self.game.legal(state)
                state = self.game.next(state, legal[table.rng.integers(len(legal))])
            return state
        if not isinstance(moves, (str, list, tuple)):
            raise ValueError(f"option moves must be a list of columns, such as ['4', '4']; got {moves!r}")
        for move in moves:
            if self.game.player(state) is None or str(move) not in self.game.legal(state):
                raise ValueError(f"option moves: {move!r} is not legal at that point; got {moves!r}")
            state = self.game.next(state, str(move))
        if self.game.player(state) is None:
            raise ValueError(f"option moves ends the game: nothing is left to play after {moves!r}")
        return state


def _play_to_depth(game: ConnectFourGame, depth: int, decision: Decision) -> str:
    """Searches to a given depth by alpha-beta; the decision's seed picks among the moves that look equally good."""
    boards = (game.read(message["content"]) for message in reversed(decision.messages))
    board = next((board for board in boards if board is not None), None)
    if board is None:
        raise LookupError(f"{decision.agent!r} has seen no board of {game.rows} rows and {game.columns} columns")
    moves = game.best_moves(board, depth)
    return moves[decision.seed % len(moves)]
