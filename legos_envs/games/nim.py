"""Nim: players take turns removing objects from a heap, and whoever takes the last one wins. By default there is one
heap of 5 to 12 objects, drawn uniformly, and a move takes 1, 2 or 3: with a multiple of four left, the player to move
is lost. Arguments set several heaps, other limits or the misere rule.

| | |
|---|---|
| seats | `player_0`, `player_1` |
| horizon | 2 to 12 turns; at most as many as there are objects |
| sum of rewards | 0 |

## What each seat is told

The rules and the size of each heap. Nothing is hidden.

## Actions

One heap: how many to take, such as `[2]`. Several heaps: heap and number, such as `[B2]`.

## Rewards

+1 to the winner, -1 to the loser: the winner takes the last object or, with `misere=True`, leaves it to the opponent.

## End

When no objects are left.

## Scripted players

`optimal` makes a winning move if there is one, and any move otherwise; `scripted:first` takes 1; `scripted:last` takes
as many as allowed (with one heap). All returns are exact.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=optimal` | `player_0 +0.5000, player_1 -0.5000` | | `player_0 +0.5, player_1 -0.5` |
| `*=random` | `player_0 +0.0217, player_1 -0.0217` | |
| `player_0=optimal player_1=random` | `player_0 +0.9321, player_1 -0.9321` | |
| `player_0=scripted:last player_1=optimal` | `player_0 -0.6667, player_1 +0.6667` | |
| `player_0=random player_1=optimal` | `player_0 -0.9865, player_1 +0.9865` | `heaps=(3, 4, 5), max_take=None` |

## Source

C. L. Bouton, "Nim, a game with a complete mathematical theory", Annals of Mathematics 3, 1901.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from legos_envs import arguments
from legos_envs.game import GameEnv, State
from legos_envs.spaces import Numbers, last, one_hot
from legos_envs.table import Seat, Table

HEAP_NAMES = "ABCDEFGH"
LARGEST = 100
Heaps = tuple[tuple[int, ...], int]
"""The size of each heap, and the player to move."""


@dataclass(frozen=True)
class NimGame:
    """Nim from one of `starts`, drawn uniformly; the winner gets 1, the loser -1."""

    starts: tuple[tuple[int, ...], ...] = tuple((size,) for size in range(5, 13))
    max_take: int | None = 3
    misere: bool = False
    num_players = 2

    @property
    def single(self) -> bool:
        return len(self.starts[0]) == 1

    def initial(self) -> list[tuple[float, State]]:
        return [(1 / len(self.starts), (heaps, 0)) for heaps in self.starts]

    def player(self, state: Heaps) -> int | None:
        return state[1] if any(state[0]) else None

    def legal(self, state: Heaps) -> tuple[str, ...]:
        cap = self.max_take or LARGEST
        if self.single:
            return tuple([str(n) for n in range(1, min(cap, state[0][0]) + 1)])
        return tuple([f"{HEAP_NAMES[i]}{n}" for i, heap in enumerate(state[0]) for n in range(1, min(cap, heap) + 1)])

    def next(self, state: Heaps, move: str) -> Heaps:
        heaps, player = state
        i, taken = (0, int(move)) if self.single else (HEAP_NAMES.index(move[0]), int(move[1:]))
        return (*heaps[:i], heaps[i] - taken, *heaps[i + 1 :]), 1 - player

    def returns(self, state: Heaps) -> tuple[float, float]:
        last = 1 - state[1]
        winner = 1 - last if self.misere else last
        return (1.0, -1.0) if winner == 0 else (-1.0, 1.0)

    def rules(self, player: int) -> str:
        much = "any number" if self.max_take is None else "1" if self.max_take == 1 else f"1 to {self.max_take}"
        source = "the heap" if self.single else "one heap (A2 is 2 from heap A)"
        end = "loses" if self.misere else "wins"
        return f"Nim. Players in turn take {much} from {source}. Who takes the last one {end}."

    def view(self, state: Heaps, player: int) -> str:
        if self.single:
            return f"Heap: {state[0][0]}."
        return f"Heaps: {' '.join(f'{name} {heap}' for name, heap in zip(HEAP_NAMES, state[0]))}."


class Nim(GameEnv):
    """Nim for two players.

    Args:
        heaps: fixed sizes, such as `(3, 4, 5)` or `9`: at most 8 heaps of 1 to 100 objects; None draws one heap.
        heap_range: smallest and largest size of the drawn heap.
        max_take: maximum number of objects per move; None for no limit.
        misere: whether taking the last object loses.

    Raises:
        ValueError: a size or limit is out of range; or, at `reset`, the option `heap` is.
    """

    name = "Nim-v0"
    replayable = True
    zero_sum = True
    seats = {f"player_{i}": Seat(f"player_{i}") for i in range(2)}
    reset_options = {"heap": "initial size, such as 9; a list of sizes for several heaps"}

    def __init__(
        self,
        heaps: int | Sequence[int] | None = None,
        heap_range: tuple[int, int] = (5, 12),
        max_take: int | None = 3,
        misere: bool = False,
        **kwargs: Any,
    ):
        if max_take is not None:
            (max_take,) = _sizes("max_take", [max_take], 1)
        if heaps is not None:
            heaps = (heaps,) if isinstance(heaps, int) else arguments.listed("heaps", heaps)
            if not 1 <= len(heaps) <= len(HEAP_NAMES):
                raise ValueError(f"heaps must be 1 to {len(HEAP_NAMES)} sizes; got {heaps!r}")
            starts = [_sizes("heaps", heaps, len(heaps))]
        else:
            low, high = _sizes("heap_range", heap_range, 2)
            if low > high:
                raise ValueError(f"heap_range must be (smallest, largest); got {heap_range!r}")
            starts = [(size,) for size in range(low, high + 1)]
        self.game = NimGame(tuple(starts), max_take, arguments.flag("misere", misere))
        self.most = tuple([max(sizes) for sizes in zip(*starts)])
        self.max_asks = sum(self.most)
        super().__init__(**kwargs)

    def numbers(self) -> Numbers:
        """The size of each heap, one-hot from 1 to its largest possible size."""
        moves = dict.fromkeys(move for _, state in self.game.initial() for move in self.game.legal(state))
        sizes = [[str(size + 1) for size in range(most)] for most in self.most]

        def read(text: str) -> list[float]:
            told = last(r"Heaps?: ([A-Z0-9 ]+)\.", text).split()
            heaps = [word for word in told if word.isdigit()] or [""] * len(sizes)
            return [hot for heap, options in zip(heaps, sizes) for hot in one_hot(heap, options)]

        names = [f"{name} {size}" for name, options in zip(HEAP_NAMES, sizes) for size in options]
        return Numbers(tuple(moves), tuple(names), read)

    def deal(self, table: Table) -> State:
        heap = table.options.get("heap")
        if heap is None:
            return super().deal(table)
        sizes = _sizes("option heap", heap if isinstance(heap, (list, tuple)) else [heap], len(self.most))
        if any(size > most for size, most in zip(sizes, self.most)):
            raise ValueError(f"option heap must be at most {' '.join(map(str, self.most))} in this env; got {heap!r}")
        return sizes, 0


def _sizes(name: str, values: Sequence[Any], count: int) -> tuple[int, ...]:
    try:
        sizes = tuple([operator.index(value) for value in values])
    except TypeError:
        sizes = ()
    if len(sizes) != count or not all(1 <= size <= LARGEST for size in sizes):
        what = "a whole number" if count == 1 else f"{count} whole numbers"
        raise ValueError(f"{name} must be {what} from 1 to {LARGEST}; got {values!r}")
    return sizes
