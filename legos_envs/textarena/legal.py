"""Which actions are legal, for games whose state tells. Names are what stands inside the brackets.

`moves(game)` gives None where any text may be said, where the list would show what a blind variant hides, and where it
would have more than `MOST` names, since prompts repeat it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise, permutations
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


def _game(*classes: str) -> Callable[[Callable[[Any], Moves]], Callable[[Any], Moves]]:
    def add(listing: Callable[[Any], Moves]) -> Callable[[Any], Moves]:
        _OF.update(dict.fromkeys(classes, listing))
        return listing

    return add


def _facts(game: Any) -> Any:
    return game.state.game_state


# --- boards of numbered cells ----------------------------------------------------------------------------------------


@_game("TicTacToeEnv", "ReverseTicTacToeEnv", "ThreePlayerTicTacToeEnv", "SimpleTakEnv")
def _free_cells(game: Any) -> Moves:
    board = _facts(game)["board"]
    return [str(cell) for cell, (r, c) in game.cell_mapping.items() if board[r][c] == ""]


@_game("WildTicTacToeEnv")
def _wild(game: Any) -> Moves:
    return [f"{mark} {cell}" for cell in _free_cells(game) or () for mark in "XO"]


@_game("QuantumTicTacToeEnv")
def _quantum(game: Any) -> Moves:
    board = _facts(game)["board"]
    free = [cell for cell, (r, c) in game.cell_mapping.items() if not board[r][c]]
    return [f"{a},{b}" for a, b in combinations(free, 2)]


@_game("UltimateTicTacToeEnv")
def _ultimate(game: Any) -> Moves:
    facts = _facts(game)
    boards, won, forced = facts["board"], facts["macro_board"], facts["next_micro_board"]
    return [
        f"{macro} {micro}"
        for macro in range(9)
        if won[macro // 3][macro % 3] == " " and forced in (None, macro)
        for micro in range(9)
        if boards[macro][micro // 3][micro % 3] == " "
    ]


@_game("ConnectFourEnv")
def _connect_four(game: Any) -> Moves:
    top = _facts(game)["board"][0]
    return [f"col {column}" for column in range(game.num_cols) if top[column] == "."]


@_game("OthelloEnv")
def _othello(game: Any) -> Moves:
    valid = game._valid_moves("B" if game.state.current_player_id == 0 else "W")
    return [f"{r}, {c}" for r, c in valid] or ["skip"]


@_game("BattleshipEnv")
def _battleship(game: Any) -> Moves:
    tracking = _facts(game)["tracking_board"][game.state.current_player_id]
    size = range(game.grid_size)
    return [f"{chr(65 + r)}{c}" for r in size for c in size if tracking[r][c] == "~"]


@_game("MinesweeperEnv")
def _minesweeper(game: Any) -> Moves:
    return [f"{r} {c}" for r in range(game.rows) for c in range(game.cols) if not game.revealed[r][c]]


# --- boards with pieces ----------------------------------------------------------------------------------------------


@_game("BreakthroughEnv")
def _breakthrough(game: Any) -> Moves:
    if not game.is_open:
        return None
    board, player, size = _facts(game)["board"], game.state.current_player_id, game.board_size
    step = 1 if player == 0 else -1
    return [
        f"{game._col_to_file[c]}{r + 1}{game._col_to_file[c + side]}{r + step + 1}"
        for r in range(size)
        for c in range(size)
        if board[r][c] == "WB"[player] and 0 <= r + step < size
        for side in (-1, 0, 1)
        if 0 <= c + side < size and game._is_valid_move(player, r, c, r + step, c + side)
    ]


@_game("AlquerqueEnv")
def _alquerque(game: Any) -> Moves:
    board, player, size = _facts(game)["board"], game.state.current_player_id, game.BOARD_N
    mine, other = "RB"[player], "BR"[player]
    cell_at = sys.modules[type(game).__module__].coord_to_rc  # type: ignore[attr-defined]
    names = {cell_at(file + rank): file + rank for file in "abcde" for rank in "12345"}
    result = []
    for (r, c), name in names.items():
        if board[r][c] != mine:
            continue
        for dr, dc in game.neighbours:
            if (dr, dc) in game.forward_dirs[player] and _inside(r + dr, c + dc, size) and board[r + dr][c + dc] == "":
                result.append(f"{name} {names[r + dr, c + dc]}")
            far = (r + 2 * dr, c + 2 * dc)
            if _inside(*far, size) and board[far[0]][far[1]] == "" and board[r + dr][c + dc] == other:
                result.append(f"{name} {names[far]}")
    return result


@_game("CrusadeEnv")
def _crusade(game: Any) -> Moves:
    return [move.strip("[]") for move in game._legal_moves_for_player(game.state.current_player_id)]


@_game("LinesOfActionEnv")
def _lines_of_action(game: Any) -> Moves:
    board, size = _facts(game)["board"], game.BOARD_N
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
        if _inside(*target, size)
        and board[target[0]][target[1]] != mine
        and all(board[r + k * dr][c + k * dc] != other for k in range(1, far))
    ]


@_game("CheckersEnv")
def _checkers(game: Any) -> Moves:
    player = game.state.current_player_id
    return [
        f"{r} {c} {r + dr} {c + dc}"
        for r in range(8)
        for c in range(8)
        if _facts(game)["board"][r][c] in ("rR" if player == 0 else "bB")
        for reach in (1, 2)
        for dr in (-reach, reach)
        for dc in (-reach, reach)
        if game._is_valid_move(player, r, c, r + dr, c + dc)
    ]


@_game("ChessEnv")
def _chess(game: Any) -> Moves:
    return None if not game.is_open else [move.uci() for move in _facts(game)["board"].legal_moves]


@_game("SantoriniBaseFixedWorkerEnv")
def _santorini(game: Any) -> Moves:
    return [move.strip("[]") for move in game._get_valid_moves(game.state.current_player_id).split(", ") if move]


@_game("StrategoEnv")
def _stratego(game: Any) -> Moves:
    board, me = game.board, game.state.current_player_id
    result = []
    for r, c in game.player_pieces[me]:
        rank = board[r][c]["rank"]
        reach = 0 if rank in ("Bomb", "Flag") else 9 if rank == "Scout" else 1
        for dr, dc in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            for far in range(1, reach + 1):
                to = (r + far * dr, c + far * dc)
                if not _inside(*to, 10) or to in game.lakes:
                    break
                there = board[to[0]][to[1]]
                if there is None or there["player"] != me:
                    result.append(f"{chr(65 + r)}{c} {chr(65 + to[0])}{to[1]}")
                if there is not None:
                    break
    return result


# --- cards and dice --------------------------------------------------------------------------------------------------


@_game("KuhnPokerEnv")
def _kuhn_poker(game: Any) -> Moves:
    return list(_facts(game)["current_legal_action_tree"])


@_game("LiarsDiceEnv")
def _liars_dice(game: Any) -> Moves:
    """Quantities stop at the number of dice in play."""
    facts = _facts(game)
    quantity, face = facts["current_bid"]["quantity"], facts["current_bid"]["face_value"]
    dice = sum(facts["remaining_dice"].values())
    bids = [
        f"Bid: {q}, {f}"
        for q in range(max(quantity, 1), dice + 1)
        for f in range(max(face, 1), 7)
        if (q, f) != (quantity, face)
    ]
    return [*bids, "Call"] if quantity and facts["last_bidder_id"] is not None else bids


@_game("PigDiceEnv")
def _pig_dice(game: Any) -> Moves:
    return ["roll", "hold"]


@_game("BlackjackEnv")
def _blackjack(game: Any) -> Moves:
    return ["Hit", "Stand"]


@_game("BriscolaEnv")
def _briscola(game: Any) -> Moves:
    hand = _facts(game)["players"][game.state.current_player_id]["hand"]
    return [f"play {k + 1}" for k in range(len(hand))]


@_game("GermanWhistEnv")
def _german_whist(game: Any) -> Moves:
    player = game.state.current_player_id
    hand = _facts(game)["players"][player]["hand"]
    return [f"play {k + 1}" for k, card in enumerate(hand) if game._is_valid_play(player, card)]


@_game("GameOfPureStrategyEnv", "ThreePlayerGOPSEnv")
def _pure_strategy(game: Any) -> Moves:
    return [game._val_to_face(card) for card in _facts(game)["player_hands"][game.state.current_player_id]]


@_game("HighSocietyEnv")
def _high_society(game: Any) -> Moves:
    return [str(card) for card in _facts(game)["player_money"][game.state.current_player_id]]


@_game("GolfEnv")
def _golf(game: Any) -> Moves:
    facts = _facts(game)
    if facts["turn_phase"] == "draw":
        return ["draw", "take"] if facts["discard_pile"] else ["draw"]
    swaps = [f"swap {r + 1} {c + 1}" for r in range(game.num_rows) for c in range(game.num_columns)]
    return swaps if facts.get("took_from_discard") else [*swaps, "discard"]


@_game("SpiteAndMaliceEnv")
def _spite_and_malice(game: Any) -> Moves:
    me = game.players[game.state.current_player_id]
    tops = [pile[-1] for pile in (me["payoff"], *me["discard"]) if pile]
    plays = [
        f"play {card} {k}"
        for card in dict.fromkeys([*me["hand"], *tops])
        for k, pile in enumerate(game.center_piles)
        if game._can_play_on_center(card, pile)
    ]
    return [*plays, *(f"discard {card} {k}" for card in dict.fromkeys(me["hand"]) for k in range(4)), "draw"]


@_game("UltimateTexasHoldemEnv")
def _ultimate_texas_holdem(game: Any) -> Moves:
    return list(_facts(game)["legal_actions"])


@_game("ThreeCardMonteEnv")
def _monte(game: Any) -> Moves:
    return map(str, range(game.num_cups))


# --- matrix games and votes ------------------------------------------------------------------------------------------


@_game("IteratedMatchingPenniesEnv")
def _pennies(game: Any) -> Moves:
    return ["heads", "tails"]


@_game("IteratedRockPaperScissorsEnv")
def _rock_paper_scissors(game: Any) -> Moves:
    return ["rock", "paper", "scissors"]


@_game("IteratedPrisonersDilemmaEnv")
def _dilemma(game: Any) -> Moves:
    return ["Cooperate", "Defect"] if _facts(game)["phase"] == "decision" else None


@_game("IteratedStagHuntEnv")
def _stag_hunt(game: Any) -> Moves:
    return ["Stag", "Hare"] if _facts(game)["phase"] == "decision" else None


@_game("PublicGoodsGameEnv")
def _public_goods(game: Any) -> Moves:
    return map(str, range(_facts(game)["endowment"] + 1)) if _facts(game)["phase"] == "decision" else None


@_game("MarketEntryGameEnv")
def _market_entry(game: Any) -> Moves:
    return ["E", "S"] if _facts(game)["phase"] == "decision" else None


@_game("IteratedUltimatumGameEnv")
def _ultimatum(game: Any) -> Moves:
    facts = _facts(game)
    if facts["phase"] == "responding":
        return ["Accept", "Reject"]
    return [f"Offer: ${k}" for k in range(facts["pool"] + 1)]


@_game("TruthAndDeceptionEnv")
def _truth(game: Any) -> Moves:
    return ["Fact 1", "Fact 2"] if game.state.turn == game.state.max_turns - 1 else None


@_game("SecretMafiaEnv")
def _mafia(game: Any) -> Moves:
    """The targets that the prompt names; TextArena takes any player who is alive."""
    alive, me = _facts(game)["alive_players"], game.state.current_player_id
    if game.phase.name == "DAY_DISCUSSION":
        return None
    if game.phase.name == "NIGHT_MAFIA":
        return [str(p) for p in alive if game.player_roles[p] != "Mafia"]
    return [str(p) for p in alive if p != me or game.phase.name == "DAY_VOTING"]


@_game("CharacterConclaveEnv")
def _conclave(game: Any) -> Moves:
    if _facts(game)["phase"] == "discussion":
        return None
    return [str(p) for p in range(game.state.num_players) if p != game.state.current_player_id]


@_game("SettlersOfCatanEnv")
def _catan(game: Any) -> Moves:
    phase = _facts(game)["turn_phase"]
    if phase == "negotiation_start":
        out = _facts(game)["eliminated_players"]
        return [str(p) for p in range(game.state.num_players) if p != game.state.current_player_id and p not in out]
    return map(str, range(1, len(game.game_moves) + 1)) if phase == "action" else None


@_game("SnakeEnv", "SurroundEnv")
def _directions(game: Any) -> Moves:
    return ["up", "down", "left", "right"]


@_game("ChopsticksEnv")
def _chopsticks(game: Any) -> Moves:
    hands = _facts(game)["hands"]
    mine, other = hands[game.state.current_player_id], hands[1 - game.state.current_player_id]
    attacks = [f"attack {i} {j}" for i in (0, 1) for j in (0, 1) if mine[i] and other[j]]
    splits = [f"split {k} {sum(mine) - k}" for k in range(sum(mine) + 1) if [k, sum(mine) - k] != mine]
    return attacks + splits


@_game("NimEnv")
def _nim(game: Any) -> Moves:
    return [f"{pile} {k}" for pile, size in enumerate(_facts(game)["piles"]) for k in range(1, size + 1)]


# --- puzzles for one -------------------------------------------------------------------------------------------------


@_game("BanditEnv")
def _bandit(game: Any) -> Moves:
    return list(game.buttons)


@_game("SecretaryEnv")
def _secretary(game: Any) -> Moves:
    return ["accept", "continue"]


@_game("GuessTheNumberEnv")
def _guess(game: Any) -> Moves:
    return [str(k) for k in range(game.min_number, game.max_number + 1) if k not in game.guessed_numbers]


@_game("LightsOutEnv")
def _lights_out(game: Any) -> Moves:
    return [f"{r} {c}" for r in range(game.size) for c in range(game.size)]


@_game("SlitherlinkEnv")
def _slitherlink(game: Any) -> Moves:
    return [
        *(f"h {r} {c}" for r in range(game.R + 1) for c in range(game.C)),
        *(f"v {r} {c}" for r in range(game.R) for c in range(game.C + 1)),
    ]


@_game("TowerOfHanoiEnv")
def _hanoi(game: Any) -> Moves:
    towers = _facts(game)["towers"]
    return [
        f"{a} {b}" for a, b in permutations("ABC", 2) if towers[a] and not (towers[b] and towers[b][-1] < towers[a][-1])
    ]


@_game("PegJumpEnv")
def _peg_jump(game: Any) -> Moves:
    board = _facts(game)["board"]
    return [f"{a} {c}" for a, b, c in game.ALLOWED_MOVES if board[a] and board[b] and not board[c]]


@_game("RushHourEnv")
def _rush_hour(game: Any) -> Moves:
    grid, size = game._occupied(), game.BOARD_SIZE
    result = []
    for name, car in _facts(game)["vehicles"].items():
        for sign in "+-":
            r, c = car.front(sign == "+")
            if _inside(r, c, size) and grid[r][c] is None:
                result.append(f"{name}{sign}")
    return result


@_game("FifteenPuzzleEnv")
def _fifteen(game: Any) -> Moves:
    r, c = game._get_empty_position()
    free = {"up": r < 3, "down": r > 0, "left": c < 3, "right": c > 0}
    return [name for name, possible in free.items() if possible]


@_game("FrozenLakeEnv")
def _frozen_lake(game: Any) -> Moves:
    r, c = _facts(game)["player_pos"]
    return [name for name, (dr, dc) in game.actions.items() if _inside(r + dr, c + dc, game.size)]


@_game("Game2048Env")
def _2048(game: Any) -> Moves:
    board = _facts(game)["board"]
    columns = [list(column) for column in zip(*board)]
    ways = {
        "Up": any(map(_slides, columns)),
        "Down": any(_slides(line[::-1]) for line in columns),
        "Left": any(map(_slides, board)),
        "Right": any(_slides(line[::-1]) for line in board),
    }
    return [name for name, possible in ways.items() if possible]


@_game("SokobanEnv")
def _sokoban(game: Any) -> Moves:
    return list(_sokoban_moves(game))


def _sokoban_moves(game: Any) -> Iterator[str]:
    """A step onto floor or target, or a push of a box onto one; in `room_state` those are 1 and 2, boxes 3 and 4."""
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


def _inside(r: int, c: int, size: int) -> bool:
    return 0 <= r < size and 0 <= c < size
