"""Legal actions of board games: free cells, and pieces that move."""

from __future__ import annotations

import sys
from itertools import combinations
from typing import Any

from legos_envs.textarena.legal.listing import Moves, inside, listed, state_of


@listed("TicTacToeEnv", "ReverseTicTacToeEnv", "ThreePlayerTicTacToeEnv", "SimpleTakEnv")
def _free_cells(game: Any) -> Moves:
    board = state_of(game)["board"]
    return [str(cell) for cell, (r, c) in game.cell_mapping.items() if board[r][c] == ""]


@listed("WildTicTacToeEnv")
def _wild(game: Any) -> Moves:
    return [f"{mark} {cell}" for cell in _free_cells(game) or () for mark in "XO"]


@listed("QuantumTicTacToeEnv")
def _quantum(game: Any) -> Moves:
    board = state_of(game)["board"]
    free = [cell for cell, (r, c) in game.cell_mapping.items() if not board[r][c]]
    return [f"{a},{b}" for a, b in combinations(free, 2)]


@listed("UltimateTicTacToeEnv")
def _ultimate(game: Any) -> Moves:
    facts = state_of(game)
    boards, won, forced = facts["board"], facts["macro_board"], facts["next_micro_board"]
    return [
        f"{macro} {micro}"
        for macro in range(9)
        if won[macro // 3][macro % 3] == " " and forced in (None, macro)
        for micro in range(9)
        if boards[macro][micro // 3][micro % 3] == " "
    ]


@listed("ConnectFourEnv")
def _connect_four(game: Any) -> Moves:
    top = state_of(game)["board"][0]
    return [f"col {column}" for column in range(game.num_cols) if top[column] == "."]


@listed("OthelloEnv")
def _othello(game: Any) -> Moves:
    valid = game._valid_moves("B" if game.state.current_player_id == 0 else "W")
    return [f"{r}, {c}" for r, c in valid] or ["skip"]


@listed("BattleshipEnv")
def _battleship(game: Any) -> Moves:
    tracking = state_of(game)["tracking_board"][game.state.current_player_id]
    size = range(game.grid_size)
    return [f"{chr(65 + r)}{c}" for r in size for c in size if tracking[r][c] == "~"]


@listed("MinesweeperEnv")
def _minesweeper(game: Any) -> Moves:
    return [f"{r} {c}" for r in range(game.rows) for c in range(game.cols) if not game.revealed[r][c]]


@listed("BreakthroughEnv")
def _breakthrough(game: Any) -> Moves:
    if not game.is_open:
        return None
    board, player, size = state_of(game)["board"], game.state.current_player_id, game.board_size
    step = 1 if player == 0 else -1
    return [
        f"{game._col_to_file[c]}{r + 1}{game._col_to_file[c + side]}{r + step + 1}"
        for r in range(size)
        for c in range(size)
        if board[r][c] == "WB"[player] and 0 <= r + step < size
        for side in (-1, 0, 1)
        if 0 <= c + side < size and game._is_valid_move(player, r, c, r + step, c + side)
    ]


@listed("AlquerqueEnv")
def _alquerque(game: Any) -> Moves:
    board, player, size = state_of(game)["board"], game.state.current_player_id, game.BOARD_N
    mine, other = "RB"[player], "BR"[player]
    cell_at = sys.modules[type(game).__module__].coord_to_rc  # type: ignore[attr-defined]
    names = {cell_at(file + rank): file + rank for file in "abcde" for rank in "12345"}
    result = []
    for (r, c), name in names.items():
        if board[r][c] != mine:
            continue
        for dr, dc in game.neighbours:
            if (dr, dc) in game.forward_dirs[player] and inside(r + dr, c + dc, size) and board[r + dr][c + dc] == "":
                result.append(f"{name} {names[r + dr, c + dc]}")
            far = (r + 2 * dr, c + 2 * dc)
            if inside(*far, size) and board[far[0]][far[1]] == "" and board[r + dr][c + dc] == other:
                result.append(f"{name} {names[far]}")
    return result


@listed("CrusadeEnv")
def _crusade(game: Any) -> Moves:
    return [move.strip("[]") for move in game._legal_moves_for_player(game.state.current_player_id)]


@listed("LinesOfActionEnv")
def _lines_of_action(game: Any) -> Moves:
    board, size = state_of(game)["board"], game.BOARD_N
    mine, other = ("O", "X") if game.state.current_player_id == 0 else ("X", "O")
    return [
        game.rc_to_coord(r, c) + game.rc_to_coord(*target)
        for r in range(size)
        for c in range(size)
        if board[r][c] == mine
        for dr in (-1, 0, 1)
        for dc in (-1, 0, 1)
        if (dr or dc)
        for far in [game._count_pieces_on_line(r, c, dr, dc)]
        for target in [(r + far * dr, c + far * dc)]
        if inside(*target, size)
        and board[target[0]][target[1]] != mine
        and all(board[r + k * dr][c + k * dc] != other for k in range(1, far))
    ]


@listed("CheckersEnv")
def _checkers(game: Any) -> Moves:
    player = game.state.current_player_id
    return [
        f"{r} {c} {r + dr} {c + dc}"
        for r in range(8)
        for c in range(8)
        if state_of(game)["board"][r][c] in ("rR" if player == 0 else "bB")
        for reach in (1, 2)
        for dr in (-reach, reach)
        for dc in (-reach, reach)
        if game._is_valid_move(player, r, c, r + dr, c + dc)
    ]


@listed("ChessEnv")
def _chess(game: Any) -> Moves:
    return None if not game.is_open else [move.uci() for move in state_of(game)["board"].legal_moves]


@listed("SantoriniBaseFixedWorkerEnv")
def _santorini(game: Any) -> Moves:
    return [move.strip("[]") for move in game._get_valid_moves(game.state.current_player_id).split(", ") if move]


@listed("StrategoEnv")
def _stratego(game: Any) -> Moves:
    board, me = game.board, game.state.current_player_id
    result = []
    for r, c in game.player_pieces[me]:
        rank = board[r][c]["rank"]
        reach = 0 if rank in ("Bomb", "Flag") else 9 if rank == "Scout" else 1
        for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            for far in range(1, reach + 1):
                to = (r + far * dr, c + far * dc)
                if not inside(*to, 10) or to in game.lakes:
                    break
                there = board[to[0]][to[1]]
                if there is None or there["player"] != me:
                    result.append(f"{chr(65 + r)}{c} {chr(65 + to[0])}{to[1]}")
                if there is not None:
                    break
    return result
