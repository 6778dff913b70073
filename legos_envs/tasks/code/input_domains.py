"""The domains of a function's arguments, in words and in code: whole numbers, lists of them, strings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Int:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def holds(self, value: Any) -> bool:
        return type(value) is int and self.low <= value <= self.high

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.low, self.high + 1))


@dataclass(frozen=True)
class Ints:
    """A list of `least` to `most` whole numbers from -9 to 9, ascending if `ordered`."""

    least: int = 0
    most: int = 8
    ordered: bool = False

    def __str__(self) -> str:
        order = ", in ascending order" if self.ordered else ""
        return f"a list of {self.least} to {self.most} whole numbers from -9 to 9{order}"

    def holds(self, value: Any) -> bool:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            return False
        return all(Int(-9, 9).holds(n) for n in value) and (not self.ordered or value == sorted(value))

    def draw(self, rng: np.random.Generator) -> list[int]:
        values = rng.integers(-9, 10, int(rng.integers(self.least, self.most + 1))).tolist()
        return sorted(values) if self.ordered else values


@dataclass(frozen=True)
class Text:
    """A string of 0 to `most` of the characters of `alphabet`."""

    alphabet: str
    most: int = 12

    def __str__(self) -> str:
        return f"a string of 0 to {self.most} characters out of {self.alphabet!r}"

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= self.most and set(value) <= set(self.alphabet)

    def draw(self, rng: np.random.Generator) -> str:
        picked = rng.integers(len(self.alphabet), size=int(rng.integers(self.most + 1)))
        return "".join([self.alphabet[i] for i in picked])


@dataclass(frozen=True)
class Like:
    """A value like one of the JSON examples: of the same types at every depth, and not much larger."""

    examples: tuple[str, ...]

    def __str__(self) -> str:
        return f"a value like {' or '.join(self.examples[:2])}"

    def holds(self, value: Any) -> bool:
        return any(_alike(value, json.loads(example)) for example in self.examples)

    def draw(self, rng: np.random.Generator) -> Any:
        return json.loads(self.examples[int(rng.integers(len(self.examples)))])


def _alike(value: Any, example: Any) -> bool:
    if type(value) is not type(example):
        return False
    if isinstance(value, int | float):
        return abs(value) <= max(100, 2 * abs(example))
    if isinstance(value, str):
        return len(value) <= max(30, 2 * len(example))
    if isinstance(value, dict):
        value, example = list(value.values()), list(example.values())
    if isinstance(value, list):
        fits = len(value) <= max(12, 2 * len(example))
        return fits and all(any(_alike(part, other) for other in example) for part in value)
    return True


Domain = tuple[Int | Ints | Text | Like, ...]
"""The kinds of a function's arguments, in their order."""
