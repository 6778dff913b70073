"""Legal actions of single-player puzzles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import Any

from legos_envs.textarena.legal.listing import Moves, inside, listed, state_of


@listed("BanditEnv")
def _bandit(game: Any) -> Moves:
    return list(game.buttons)


@listed("SecretaryEnv")
def _secretary(game: Any) -> Moves:
    return ["accept", "continue"]


@listed("GuessTheNumberEnv")
def _guess(game: Any) -> Moves:
    return [str(k) for k in range(game.min_number, game.max_number + 1) if k not in game.guessed_numbers]


@listed("LightsOutEnv")
def _lights_out(game: Any) -> Moves:
    return [f"{r} {c}" for r in range(game.size) for c in range(game.size)]


@listed("SlitherlinkEnv")
def _slitherlink(game: Any) -> Moves:
    return [
        *(f"h {r} {c}" for r in range(game.R + 1) for c in range(game.C)),
        *(f"v {r} {c}" for r in range(game.R) for c in range(game.C + 1)),
    ]


@listed("TowerOfHanoiEnv")
def _hanoi(game: Any) -> Moves:
    towers = state_of(game)["towers"]
    return [
        f"{a} {b}" for a, b in permutations("ABC", 2) if towers[a] and not (towers[b] and towers[b][-1] < towers[a][-1])
    ]


@listed("PegJumpEnv")
def _peg_jump(game: Any) -> Moves:
    board = state_of(game)["board"]
    return [f"{a} {c}" for a, b, c in game.ALLOWED_MOVES if board[a] and board[b] and not board[c]]


@listed("RushHourEnv")
def _rush_hour(game: Any) -> Moves:
    grid, size = game._occupied(), game.BOARD_SIZE
    result = []
    for name, car in state_of(game)["vehicles"].items():
        for sign in "+-":
            r, c = car.front(sign == "+")
            if inside(r, c, size) and grid[r][c] is None:
                result.append(f"{name}{sign}")
    return result


@listed("FifteenPuzzleEnv")
def _fifteen(game: Any) -> Moves:
    r, c = game._get_empty_position()
    free = {"up": r < 3, "down": r > 0, "left": c < 3, "right": c > 0}
    return [name for name, possible in free.items() if possible]


@listed("FrozenLakeEnv")
def _frozen_lake(game: Any) -> Moves:
    r, c = state_of(game)["player_pos"]
    return [name for name, (dr, dc) in game.actions.items() if inside(r + dr, c + dc, game.size)]


@listed("Game2048Env")
def _2048(game: Any) -> Moves:
    board = state_of(game)["board"]
    columns = [list(column) for column in zip(*board)]
    ways = {
        "Up": any(map(_slides, columns)),
        "Down": any(_slides(line[::-1]) for line in columns),
        "Left": any(map(_slides, board)),
        "Right": any(_slides(line[::-1]) for line in board),
    }
    return [name for name, possible in ways.items() if possible]


@listed("SokobanEnv")
def _sokoban(game: Any) -> Moves:
    return list(_sokoban_moves(game))


def _sokoban_moves(game: Any) -> Iterator[str]:
    """A step onto floor or a target, or a push of a box onto one; in `room_state` these are 1 and 2, boxes 3 and 4."""
    room, (r, c) = game.room_state, game.player_position
    for name, (dr, dc) in {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}.items():
        if not (0 <= r + dr < room.shape[0] and 0 <= c + dc < room.shape[1]):
            continue
        ahead = room[r + dr, c + dc]
        far = (r + 2 * dr, c + 2 * dc)
        pushed = 0 <= far[0] < room.shape[0] and 0 <= far[1] < room.shape[1] and room[far] in (1, 2)
        if ahead in (1, 2) or (ahead in (3, 4) and pushed):
            yield name


def _slides(line: list[int]) -> bool:
    """Whether a row of 2048 changes when it is pushed to its front."""
    return any((a == 0 and b != 0) or (a == b != 0) for a, b in pairwise(line))
