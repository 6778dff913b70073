"""Every hint in the messages of the three packages: `python -m tests.hints` prints the table.

A hint is a command, a flag, an extra or a page of the docs that a text names. Texts are all strings of the source that
are not docstrings, so a new message is in the table by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("legos_envs", "legos_train", "inference")
KINDS = {
    "command": r"(?:(?<=`)|(?<=: )|^ *|(?<=\n))(legos [a-z]+(?: [^`#;,\n]*)?)",
    "flag": r"(?<![\w-])(--[a-z][a-z0-9.-]*[a-z0-9])",
    "extra": r"(?:--extra |legos-selfplay\[|extra `)([a-z,]+)",
    "install": r"((?:uv )?pip install [^`;,\n]+|uv sync[^`;,\n]*)",
    "page": r"(docs/[a-z_]+\.md)",
    "variable": r"(?<![\w-])(LEGOS_[A-Z_]+)",
}
NO_TEXTS = ("color-scheme", "--c0:", "var(--", "compgen", "compadd")
"""What only style sheets and scripts for shells have."""


class Hint(NamedTuple):
    """What a text tells somebody to use: where the text stands, the kind of hint, its words, and the whole text."""

    place: str
    kind: str
    words: str
    text: str


@cache
def hints() -> list[Hint]:
    """All of them, in the order of the source."""
    return [hint for place, text in texts() for hint in _of(place, text)]


def texts() -> Iterator[tuple[str, str]]:
    """Places and strings; what a string is formatted with is `{}` in it."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            own = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
            for node in nodes:
                if isinstance(node, ast.JoinedStr):
                    own |= {id(part) for part in node.values}
                    words = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
                    text = "".join(words)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in own:
                    text = node.value
                else:
                    continue
                if not any(mark in text for mark in NO_TEXTS):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", text


def _of(place: str, text: str) -> Iterator[Hint]:
    for kind, pattern in KINDS.items():
        for match in re.finditer(pattern, text) if " " in text else ():  # a word alone is an argument
            yield Hint(place, kind, match[1].strip(), text)


if __name__ == "__main__":
    for hint in hints():
        print(f"{hint.place:52} {hint.kind:8} {hint.words}")
