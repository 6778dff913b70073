"""Observations for the terminal: no repetitions, boards in rows, no control sequences."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

BOARD_ROW = re.compile(r"\S(?: \S)+")


def repeated(lines: Sequence[str], before: Sequence[str]) -> int:
    """The number of leading lines a text shares with the previous one; never splits a board."""
    same = 0
    while same < min(len(lines), len(before)) and lines[same] == before[same]:
        same += 1
    while 0 < same < len(lines) and BOARD_ROW.fullmatch(lines[same]) and BOARD_ROW.fullmatch(lines[same - 1]):
        same -= 1
    return same


def squared(text: str) -> str:
    """The text with every board on one line of single characters (`Board: X 2 3 ...`) in rows, if it is square."""

    def rows(match: re.Match[str]) -> str:
        cells = match[1].split()
        side = math.isqrt(len(cells))
        if side * side != len(cells):
            return match[0]
        lines = [" ".join(cells[k : k + side]) for k in range(0, len(cells), side)]
        return "Board:\n" + "\n".join(f"  {line}" for line in lines)

    return re.sub(r"\bBoard: ((?:\S ){8,}\S)$", rows, text, flags=re.MULTILINE)


def clean(text: Any) -> str:
    """Text without control characters: a model's could otherwise move the cursor or change the window title."""
    return "".join(
        c if c in "\n\t" or not unicodedata.category(c).startswith("C") else f"\\u{ord(c):04x}" for c in str(text)
    )
