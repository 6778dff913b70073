"""Connect four on a bitboard: the rules as a `Game`, and depth-limited alpha-beta search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from legos_envs.game import State

MARKS = "XO"
EMPTY = "_"
Board = tuple[int, int]
"""The cells of player 0 and of player 1 as bits: bit `column * (rows + 1) + row`, row 0 at the bottom."""


@dataclass(frozen=True)
class ConnectFourGame:
    """Connect four on a board of any size; the winner gets 1, the loser -1, both 0 for a draw.

    The bit above each column is always 0, so that no line can run from the top of one column into the next.
    """

    rows: int = 6
    columns: int = 7
    connect: int = 4
    num_players = 2

    @cached_property
    def _bottoms(self) -> tuple[int, ...]:
        return tuple([1 << column * (self.rows + 1) for column in range(self.columns)])

    @cached_property
    def _tops(self) -> tuple[tuple[str, int], ...]:
        return tuple([(str(i + 1), bit << self.rows - 1) for i, bit in enumerate(self._bottoms)])

    @cached_property
    def _full(self) -> int:
        return sum([bit * ((1 << self.rows) - 1) for bit in self._bottoms])

    @cached_property
    def _header(self) -> str:
        return " ".join([name for name, _ in self._tops])

    @property
    def solvable(self) -> bool:
        """Whether all positions can be enumerated within seconds."""
        return self.rows * self.columns <= 16

    def initial(self) -> list[tuple[float, State]]:
        return [(1.0, (0, 0))]

    def player(self, state: Board) -> int | None:
        taken = state[0] | state[1]
        mover = taken.bit_count() & 1
        return None if taken == self._full or self.connected(state[1 - mover]) else mover

    def connected(self, cells: int) -> bool:
        """Whether a set of cells has `connect` in a row, column or diagonal."""
        for step in (1, self.rows, self.rows + 1, self.rows + 2):
            run = cells
            for _ in range(self.connect - 1):
                run &= run >> step
            if run:
                return True
        return False

    def legal(self, state: Board) -> tuple[str, ...]:
        taken = state[0] | state[1]
        return tuple([name for name, top in self._tops if not taken & top])

    def next(self, state: Board, move: str) -> Board:
        column = self._bottoms[int(move) - 1]
        taken = state[0] | state[1]
        cell = (taken + column) & ~taken
        return (state[0] | cell, state[1]) if taken.bit_count() & 1 == 0 else (state[0], state[1] | cell)

    def returns(self, state: Board) -> tuple[float, float]:
        first, second = self.connected(state[0]), self.connected(state[1])
        return float(first) - float(second), float(second) - float(first)

    def rules(self, player: int) -> str:
        return (
            f"Connect {self.connect}. Players in turn drop a mark into a column; it falls to the lowest free cell. "
            f"{self.connect} own marks in a row, column or diagonal win. "
            f"The board is shown below the numbers of its columns, top row first; {EMPTY} is free."
        )

    def view(self, state: Board, player: int) -> str:
        marks = [EMPTY] * (self.columns * (self.rows + 1))
        for mark, cells in zip(MARKS, state):
            left = cells
            while left:
                marks[(left & -left).bit_length() - 1] = mark
                left &= left - 1
        lines = [" ".join(marks[row :: self.rows + 1]) for row in range(self.rows - 1, -1, -1)]
        free = " ".join(self.legal(state))
        return "\n".join([f"You are {MARKS[player]}. Columns with room: {free}.", self._header, *lines])

    def read(self, text: str) -> Board | None:
        """The last board shown in a text, if any: the inverse of `view`."""
        below = text.rpartition(f"\n{self._header}\n")[2].split("\n")[: self.rows]
        cells = [line.split(" ") for line in below]
        if len(cells) < self.rows or any(len(line) != self.columns for line in cells):
            return None
        board = [0, 0]
        for height, line in enumerate(reversed(cells)):
            for column, mark in enumerate(line):
                if mark in MARKS:
                    board[MARKS.index(mark)] |= self._bottoms[column] << height
        return board[0], board[1]

    # --- search ------------------------------------------------------------------------------------------------------

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """The lowest cells of the columns, middle columns first, since their cells are part of the most lines."""
        middle = 1 + self._bottoms[-1].bit_length()
        return tuple(sorted(self._bottoms, key=lambda bit: abs(2 * bit.bit_length() - middle)))

    def _cells(self, taken: int) -> list[int]:
        """The cells where a mark would land, one per column with room: adding its lowest bit carries up to it."""
        free = self._full & ~taken
        return [cell for low in self._order if (cell := (taken + low) & free)]

    def best_moves(self, state: Board, depth: int) -> tuple[str, ...]:
        """The best moves by alpha-beta search: those that win soonest, or lose latest, within `depth`.

        Anything more than `depth` plies ahead counts as a draw.
        """
        mover = (state[0] | state[1]).bit_count() & 1
        own, other = state[mover], state[1 - mover]
        best, result = -depth, list[int]()
        for cell in self._cells(own | other):
            won = self.connected(own | cell)
            value = depth if won else -self._search(other, own | cell, depth - 1, -depth, 1 - best)
            if value > best:
                best, result = value, []
            if value == best:
                result.append(cell)
        return tuple([str((cell.bit_length() - 1) // (self.rows + 1) + 1) for cell in sorted(result)])

    def _search(self, own: int, other: int, depth: int, alpha: int, beta: int) -> int:
        """The value of a position to the player to move: +n if it wins with n plies left, -n if it loses, else 0."""
        if depth == 0:
            return 0
        cells = self._cells(own | other)
        if any(self.connected(own | cell) for cell in cells):
            return depth
        if depth == 1 or not cells:
            return 0
        best = -depth
        for cell in cells:
            value = -self._search(other, own | cell, depth - 1, -beta, -alpha)
            if value > best:
                best = value
                if best >= beta:
                    break
                alpha = max(alpha, best)
        return best
