"""Tasks on lists of numbers: steps in words, an order given separately, and the resulting list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np

ListStep = Callable[[list[int]], list[int]]
LEAST, MOST = 2, 8
"""Minimum and maximum number of steps of a task."""
_FIXED: dict[str, ListStep] = {
    "reverse the list": lambda x: x[::-1],
    "sort the list from small to large": sorted,
    "double every number": lambda x: [2 * n for n in x],
    "remove the first number": lambda x: x[1:],
    "remove the last number": lambda x: x[:-1],
    "move the first number to the end": lambda x: x[1:] + x[:1],
    "swap the first and the last number": lambda x: [x[-1], *x[1:-1], x[0]] if len(x) > 1 else x,
    "put the sum of all numbers at the end": lambda x: [*x, sum(x)],
}
_ADD = "add {} to every number"
STEPS: dict[str, ListStep] = _FIXED | {
    _ADD.format(k): (lambda x, k=k: [n + k for n in x])  # type: ignore[misc]
    for k in range(1, 10)
}
"""Every step by its wording."""


class ListTask(NamedTuple):
    """A list, lettered steps, and the order in which to apply them."""

    start: tuple[int, ...]
    steps: tuple[str, ...]
    order: tuple[int, ...]

    @property
    def text(self) -> str:
        """Steps and order; not the list."""
        lines = [f"{letter}: {words}" for letter, words in zip(ascii_uppercase, self.steps)]
        return "\n".join(["Steps:", *lines, f"Order: {' '.join(ascii_uppercase[i] for i in self.order)}"])

    @property
    def result(self) -> list[int]:
        """The list after applying the steps in order."""
        return apply([self.steps[i] for i in self.order], self.start)


def apply(steps: Sequence[str], start: Sequence[int]) -> list[int]:
    """A list after applying steps, given by their wording."""
    numbers = list(start)
    for words in steps:
        numbers = STEPS[words](numbers)
    return numbers


def make(rng: np.random.Generator, count: int) -> ListTask:
    """A task of `count` distinct steps. The order is never alphabetical, and it matters for the result."""
    while True:
        start = tuple(int(n) for n in rng.integers(1, 20, size=int(rng.integers(3, 6))))
        names = [*_FIXED, _ADD.format(int(rng.integers(1, 10)))]
        steps = tuple(names[i] for i in rng.permutation(len(names))[:count])
        task = ListTask(start, steps, tuple(int(i) for i in rng.permutation(count)))
        if len(task.result) >= 2 and task.result not in (apply(steps, start), list(start)):
            return task


def key(task: ListTask) -> str:
    """The steps regardless of their letters: identifies the task for splits."""
    return f"{list(task.start)}: {', '.join(task.steps[i] for i in task.order)}"


def score(got: Sequence[int], wanted: Sequence[int], partial: bool = True) -> float:
    """1 for the right list; else, with `partial`, the matching positions as a share of the longer list, else 0."""
    if not partial or not wanted:
        return float(list(got) == list(wanted))
    return sum(a == b for a, b in zip(got, wanted)) / max(len(got), len(wanted))


def steps_in(text: str) -> list[str]:
    """The steps named by lines of a text, in order; other lines are ignored."""
    result = []
    for line in text.splitlines():
        words = line.partition(".")[2].strip().casefold().rstrip(".") if line[:1].isdigit() else ""
        if words in STEPS:
            result.append(words)
    return result
