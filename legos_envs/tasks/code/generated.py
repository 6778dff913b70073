"""Generated exercises by index: one-line functions of 24 families with drawn names and constants.

`exercise(7).item` is for CodeGen: signature, description, reference, programs that are almost right, calls.
`exercise(7).patch` is for RedBlue: the same function as the defender gets it, three times in four with a bug.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from numpy.random import Generator

from legos_envs import arguments
from legos_envs.table import keyed_generator
from legos_envs.tasks.code.code_items import Item
from legos_envs.tasks.code.families import FAMILIES
from legos_envs.tasks.code.patch_items import PatchItem
from legos_envs.tasks.splits import SPLITS, part_of

SIZE = 10_000
"""Number of exercises."""
NAMES = (
    "adapt", "answer", "apply", "build", "change", "check", "compute", "convert", "derive", "evaluate", "find", "get",
    "handle", "make", "measure", "obtain", "perform", "process", "resolve", "run", "solve", "transform", "update",
    "work",
)  # fmt: skip


class Exercise(NamedTuple):
    """A function, as an exercise to write or to fix."""

    item: Item
    patch: PatchItem
    part: str
    """`"train"` or `"test"`, depending on what the function returns, not on its name."""


@lru_cache(1 << 14)
def exercise(index: int) -> Exercise:
    """The exercise of an index from 0 to `SIZE` - 1; equal on every machine."""
    rng = keyed_generator(arguments.whole("index", index, 0, SIZE - 1), "exercise")
    made = FAMILIES[int(rng.integers(len(FAMILIES)))](rng)
    name = NAMES[int(rng.integers(len(NAMES)))]
    typed = ", ".join([f"{parameter}: {kind}" for parameter, kind in made.parameters.items()])
    head = f"def {name}({typed}) -> {made.result}:"
    body = head + "\n    return {}"
    wrong = tuple([body.format(made.wrong[i]) for i in rng.permutation(len(made.wrong))])
    item = Item(name, head, f"It returns {made.returns}.", body.format(made.right), wrong, tuple(made.calls))
    mended = f"def {name}({', '.join(made.parameters)}):\n    return {made.right}"
    bug = made.wrong[int(rng.integers(len(made.wrong)))] if rng.integers(4) else None
    found = mended if bug is None else mended.replace(made.right, bug)
    witness = None if bug is None else tuple(made.calls[0])
    patch = PatchItem(name, f"returns {made.returns}.", made.domain, found, mended, witness)
    return Exercise(item, patch, part_of(made.returns))


def draw_index(rng: Generator, split: str) -> int:
    """The index of a random exercise of a split."""
    arguments.one_of("split", split, SPLITS)
    while True:
        index = int(rng.integers(SIZE))
        if split in ("all", exercise(index).part):
            return index
