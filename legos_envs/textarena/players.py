"""A random player for games that list no legal actions: it fills in a template, or follows a small function.

A template is a text with choices in braces: `{1..20}` is a whole number, `{a-h}` a letter, `{red|blue}` one of several.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random

from legos_envs import parsing
from legos_envs.play import Decision

Script = Callable[[Random, Decision], str]
TALK = (
    "I think that is fair.",
    "Let us work together.",
    "I am not sure that I believe you.",
    "What do you have in mind?",
    "No, thank you.",
)
BOX = parsing.write_action("...", "boxed")
"""Part of the prompts that ask for boxed actions."""
_CHOICE = re.compile(r"\{([^{}]*)\}")


def fill(template: str, rng: Random) -> str:
    """The template with every choice filled in."""

    def one(match: re.Match[str]) -> str:
        inside = match.group(1)
        if ".." in inside:
            low, high = map(int, inside.split(".."))
            return str(rng.randint(low, high))
        if len(inside) == 3 and inside[1] == "-":
            return chr(rng.randint(ord(inside[0]), ord(inside[2])))
        return rng.choice(inside.split("|"))

    return _CHOICE.sub(one, template)


def random_player(game: str) -> Callable[[Decision], str]:
    """Plays a TextArena game at random, as a function of `decision.seed` and what the player has been told."""
    matching = [key for key in _PLAYERS if game.startswith(key)]
    player = _PLAYERS[max(matching, key=len)] if matching else chat
    chooses = game.startswith("TowerOfHanoi")  # among the legal moves, but not uniformly

    def play(decision: Decision) -> str:
        rng = Random(decision.seed)
        if decision.legal_actions and not chooses:
            return rng.choice(decision.legal_actions)
        reply = player(rng, decision)
        asked = (decision.legal_actions or (_words(decision),))[0]
        return _boxed(reply) if asked.startswith("\\boxed{") or BOX in asked else reply

    return play


def _boxed(text: str) -> str:
    """The text with its outermost square brackets replaced by boxes."""
    result, depth = "", 0
    for character in text:
        depth -= character == "]"
        result += character if depth or character not in "[]" else "\\boxed{" if character == "[" else "}"
        depth += character == "["
    return result


def chat(rng: Random, decision: Decision) -> str:
    """A sentence."""
    return rng.choice(TALK)


def one_of(*templates: str) -> Script:
    """One of several templates, all equally likely."""
    return lambda rng, decision: fill(rng.choice(templates), rng)


def _fresh(player: Script) -> Script:
    """Redraws a reply that this player has given before, up to a hundred times."""

    def play(rng: Random, decision: Decision) -> str:
        reply = {message["content"] for message in decision.messages if message["role"] == "assistant"}
        reply |= {f"[{parsing.boxed(text)}]" for text in reply}
        tries = (player(rng, decision) for _ in range(100))
        first = next(tries)
        return first if first not in reply else next((text for text in tries if text not in reply), first)

    return play


def _words(decision: Decision) -> str:
    return "\n".join(message["content"] for message in decision.messages if message["role"] == "user")


def _mastermind(length: int, colours: int, repeat: bool = False) -> Script:
    def play(rng: Random, decision: Decision) -> str:
        pegs = range(1, colours + 1)
        code = rng.choices(pegs, k=length) if repeat else rng.sample(pegs, length)
        return f"[{' '.join(map(str, code))}]"

    return play


def _blotto(fields: int, units: int) -> Script:
    def play(rng: Random, decision: Decision) -> str:
        cuts = [0, *sorted(rng.choices(range(units + 1), k=fields - 1)), units]
        return f"[{' '.join(f'{chr(65 + i)}{b - a}' for i, (a, b) in enumerate(pairwise(cuts)))}]"

    return play


def _memory(size: int) -> Script:
    def play(rng: Random, decision: Decision) -> str:
        first, second = rng.sample(range(size * size), 2)
        return f"[{first // size} {first % size} {second // size} {second % size}]"

    return play


def _logic_puzzle(rng: Random, decision: Decision) -> str:
    """A row and a column of one of the last shown tables, and a mark."""
    lines = _words(decision).rpartition("Current Board:")[2].split("\n")
    tables: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line.startswith(" ") and line.endswith("|"):
            tables.append(([], [cell.strip() for cell in line.split("|")[:-1]]))
        elif line.endswith("|") and tables:
            tables[-1][0].append(line.split(" ")[0])
    rows, columns = rng.choice([table for table in tables if table[0]] or [(["x"], ["y"])])
    return f"[{rng.choice(rows)} {rng.choice(columns)} {rng.choice('XO')}]"


def _taboo(rng: Random, decision: Decision) -> str:
    """Half of the clues spell the word out, and a guesser who sees letters uses them: this random player sometimes
    cheats, since otherwise it would never be right.
    """
    text = _words(decision)
    words = re.findall(r"word to guess is '([^']*)'", text)
    if "the Clue Giver for Team" in text:
        return "Letters: " + " ".join(words[-1]) + "." if words and rng.random() < 0.5 else "It is a thing."
    letters = re.findall(r"Letters: ([^.]*)\.", decision.messages[-1]["content"])
    guess = "".join(letters[-1].split(" ")) if letters else "elephant"
    return f"[{guess}]"


def _tak(size: int) -> Script:
    def play(rng: Random, decision: Decision) -> str:
        me = decision.agent.rpartition("_")[2]
        return fill(f"[place () {{({{0..{size - 1}}},{{0..{size - 1}}}): [F{me}]}}]", rng)

    return play


def _empty_cell(mark: str, first: int, fillings: str) -> Script:
    """Fills one of the cells marked `mark` in the last shown grid; rows and columns count from `first`."""

    def play(rng: Random, decision: Decision) -> str:
        rows = re.findall(r"^R\d+ (.*)$", _words(decision).rpartition(" C")[2], re.MULTILINE)
        grid = [[cell for cell in row.split() if cell != "|"] for row in rows]
        cells = [(r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell == mark]
        r, c = rng.choice(cells or [(0, 0)])
        return f"[{r + first} {c + first} {rng.choice(fillings)}]"

    return play


def _hanoi(disks: int) -> Script:
    """Plays the solution in half of the episodes: the smallest disk moves cyclically, every other move is forced."""
    order = "ACB" if disks % 2 else "ABC"

    def play(rng: Random, decision: Decision) -> str:
        rounds, other = divmod(decision.turn, 2)
        legal = decision.legal_actions or ()
        if decision.episode_seed % 2:
            return rng.choice(legal)
        smallest = order[(rounds + other) % 3]
        if not other:
            return f"[{smallest} {order[(rounds + 1) % 3]}]"
        return next((move for move in legal if move[-4] != smallest), legal[0])  # the ending is preceded by "A C"

    return play


def _cryptarithm(rng: Random, decision: Decision) -> str:
    """A letter and a digit that were not used before."""
    reply = "".join(message["content"] for message in decision.messages if message["role"] == "assistant")
    letters = [letter for letter in "MSENDORY" if letter not in reply]
    digits = [digit for digit in "1234567890" if digit not in reply]
    return f"[{letters[0] if letters else 'M'} {rng.choice(digits) if digits else 0}]"


def _liars_dice(rng: Random, decision: Decision) -> str:
    """Raises the last bid by one, or calls it."""
    bids = re.findall(r"bids (\d+) of face (\d+)", decision.messages[-1]["content"].rpartition("rolled")[2])
    if not bids:
        return "[Bid: 1, 1]"
    quantity, face = map(int, bids[-1])
    return rng.choice(("[Call]", f"[Bid: {quantity + 1}, {face}]"))


def _breakthrough(rng: Random, decision: Decision) -> str:
    """One pawn, one step, from its initial position."""
    file = rng.choice("abcdefgh")
    return f"[{file}2{file}3]" if decision.agent == "player_0" else f"[{file}7{file}6]"


def _long_talk(rng: Random, decision: Decision) -> str:
    return " ".join(rng.choices(TALK, k=20))


def _indian_poker(rng: Random, decision: Decision) -> str:
    facing = "[call]" in decision.messages[-1]["content"]
    return fill(rng.choice(("[call]", "[fold]", "[raise {1..5}]") if facing else ("[check]", "[bet {1..5}]")), rng)


_PLAYERS: dict[str, Script] = {
    "Battleship-v0-large": _fresh(one_of("[{A-N}{0..13}]")),
    "Battleship-v0-extreme": _fresh(one_of("[{A-T}{0..19}]")),
    "Battleship-v0-standard": _fresh(one_of("[{A-J}{0..9}]")),
    "Breakthrough-v0-blind": _breakthrough,
    "CharacterConclave": _long_talk,
    "Chess-v0-blind": one_of("[{a-h}2{a-h}{3..4}]", "[{a-h}7{a-h}{5..6}]"),
    "ColonelBlotto-v0-extreme": _blotto(7, 75),
    "ColonelBlotto-v0-large": _blotto(5, 50),
    "ColonelBlotto": _blotto(3, 20),
    "Countdown": one_of("[{0..3} {0..3} {+|-|*}]"),
    "Crosswords": _empty_cell("_", 0, "aeinorst"),
    "Cryptarithm": _cryptarithm,
    "IndianPoker": _indian_poker,
    "IteratedTwoThirdsAverage": one_of("[{0..100}]"),
    "LiarsDice": _liars_dice,
    "LogicPuzzle": _fresh(_logic_puzzle),
    "Mastermind-v0-extreme": _mastermind(6, 12, repeat=True),
    "Mastermind-v0-hard": _mastermind(4, 8),
    "Mastermind": _mastermind(4, 6),
    "MemoryGame-v0-hard": _memory(8),
    "MemoryGame-v0-medium": _memory(6),
    "MemoryGame": _memory(4),
    "Minesweeper": _fresh(one_of("[{0..9} {0..9}]")),
    "NewRecruit": one_of(*["I like it. [Propose] " + "{A-E}" * 8] * 2, "[Accept]", "[Reject]"),
    "Othello": one_of("[{0..13}, {0..13}]"),
    "Poker": one_of("[call]", "[call]", "[call]", "[fold]", "[raise {10..60}]"),
    "Set": one_of("[{1..12},{1..12},{1..12}]"),
    "SettlersOfCatan": one_of("[done]", "[deny]", "[done]", "What would you give me?"),
    "SimpleBlindAuction": one_of("[Bid on Item {0..2}: {1..200}] [Bid on Item {0..2}: {1..200}]", "I want item 1."),
    "SimpleNegotiation": one_of("[Accept]", "[Deny]", "Hello.", "[Offer: {1..5} {Wheat|Wood} -> {1..5} {Ore|Brick}]"),
    "Sudoku": _empty_cell(".", 1, "123456789"),
    "Taboo": _taboo,
    "Tak-v0-hard": _tak(6),
    "Tak-v0-medium": _tak(5),
    "Tak": _tak(4),
    "ThreePlayerIPD": one_of("[0 {cooperate|defect}] [1 {cooperate|defect}] [2 {cooperate|defect}]"),
    "TowerOfHanoi-v0-extreme": _hanoi(7),
    "TowerOfHanoi-v0-hardcore": _hanoi(6),
    "TowerOfHanoi-v0-hard": _hanoi(5),
    "TowerOfHanoi-v0-medium": _hanoi(4),
    "TowerOfHanoi": _hanoi(3),
    "TwoDollar": one_of("[Propose] ${0..1}.{10..99}", "[Propose] ${0..1}.{10..99}", "[Accept]", "[Reject]"),
    "UltimateTicTacToe": one_of("[{0..8} {0..8}]"),
}
"""By the longest matching prefix of the id. After a refused try, the seat draws again for the second."""
