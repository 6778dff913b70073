"""Writing tasks that code can check: a list of demands on a short text, each either met or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

import numpy as np

WORDS = (
    "lantern", "harbour", "orchard", "violin", "glacier", "compass", "meadow", "anchor", "saddle", "thimble",
    "walnut", "beacon", "copper", "ribbon", "pebble", "falcon", "kettle", "marble", "canyon", "willow",
)  # fmt: skip
FILLERS = ("very", "really", "just")
"""Words that a demand may rule out."""
OPENINGS = ("Today", "Once", "Listen", "Yesterday")
TITLE = "Write a short text that meets these demands:"
ENDINGS = ("The end.", "Thank you.", "Good night.", "See you soon.")


class Demand(NamedTuple):
    """One demand: its wording, and the property that a text must have."""

    kind: str
    value: str | int
    text: str

    def met(self, text: str) -> bool:
        """Whether a text meets it. Linear time."""
        return CONDITIONS[self.kind](text.strip(), self.value)


def words(text: str) -> list[str]:
    """The words of a text, lowercased and without punctuation."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


CONDITIONS: dict[str, Callable[..., bool]] = {
    "word": lambda text, word: word in words(text),
    "without": lambda text, word: word not in words(text),
    "number": lambda text, number: str(number) in words(text),
    "most": lambda text, count: len(text.split()) <= count,
    "lines": lambda text, count: sum(1 for line in text.split("\n") if line.strip()) == count,
    "begins": lambda text, word: text.startswith(word),
    "ends": lambda text, ending: text.endswith(ending),
    "questions": lambda text, count: text.count("?") == count,
}


def draw(rng: np.random.Generator, count: int) -> tuple[Demand, ...]:
    """Distinct demands that a single text can meet.

    Args:
        rng: draws the kinds and their values.
        count: number of demands, 1 to 8.
    """

    def pick(choices: tuple[str, ...]) -> str:
        return choices[int(rng.integers(len(choices)))]

    word, filler, opening, ending = pick(WORDS), pick(FILLERS), pick(OPENINGS), pick(ENDINGS)
    number, most = int(rng.integers(12, 100)), int(rng.integers(12, 31))
    lines, questions = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    every = (
        Demand("word", word, f'contains the word "{word}"'),
        Demand("without", filler, f'does not contain the word "{filler}"'),
        Demand("number", number, f"contains the number {number}"),
        Demand("most", most, f"has at most {most} words"),
        Demand("lines", lines, f"has exactly {lines} lines"),
        Demand("begins", opening, f'begins with the word "{opening}"'),
        Demand("ends", ending, f'ends with "{ending}"'),
        Demand("questions", questions, f"has exactly {questions} question mark{'s' * (questions > 1)}"),
    )
    return tuple([every[i] for i in sorted(rng.permutation(len(every))[:count])])


def put(demands: tuple[Demand, ...]) -> str:
    """The task as shown to players."""
    return "\n".join([TITLE, *(f"- {demand.text}" for demand in demands)])


def share(demands: tuple[Demand, ...], text: str) -> float:
    """The share of the demands that a text meets, 0 to 1."""
    return sum(demand.met(text) for demand in demands) / len(demands)


def read(task: str) -> tuple[Demand, ...]:
    """The demands of the task at the start of a prompt: the inverse of `put`, for scripted players."""
    _, title, rest = task.partition(f"{TITLE}\n")
    lines = takewhile(lambda line: line.startswith("- "), rest.split("\n")) if title else ()
    return tuple([_read(line[2:]) for line in lines])


def _read(text: str) -> Demand:
    starts = {
        'contains the word "': "word",
        'does not contain the word "': "without",
        "contains the number ": "number",
        "has at most ": "most",
        'begins with the word "': "begins",
        'ends with "': "ends",
        "has exactly ": "lines" if text.endswith(" lines") else "questions",
    }
    start, kind = next((start, kind) for start, kind in starts.items() if text.startswith(start))
    rest = text.removeprefix(start)
    return Demand(kind, rest[:-1] if start.endswith('"') else int(rest.split()[0]), text)


def solution(demands: tuple[Demand, ...]) -> str:
    """A text that meets all demands."""
    wanted = {demand.kind: demand.value for demand in demands}
    first = [str(wanted[kind]) for kind in ("begins", "word", "number") if kind in wanted]
    body = " ".join(first or ["Here"]) + "?" * int(wanted.get("questions", 0))
    middle = ["and"] * (int(wanted.get("lines", 2)) - 2)
    return "\n".join([body, *middle, str(wanted.get("ends", "so."))])


def failure() -> str:
    """A text that meets no demand of any task."""
    return " ".join(FILLERS * 12)
