"""Which items are for training and which for testing: a fixed fifth of all items, chosen by hash, is held out.

The part of an item depends on its text alone, not on its place in a list or on a seed. So the same fifth is held out by
an environment that trains, by one that measures and by the recipe of the bundled model, and items made by a generator
are split without listing them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from legos_envs import arguments

T = TypeVar("T")
SPLITS = ("all", "train", "test")
TEST_SHARE = 5
"""One in so many items is a test item."""


def part_of(item: str) -> str:
    """`"test"` or `"train"`, a function of what identifies the item: its question, its operands, its name."""
    digest = hashlib.sha256(f"split {item}".encode()).digest()
    return "train" if int.from_bytes(digest[:4], "big") % TEST_SHARE else "test"


def of_split(items: Sequence[T], split: str, key: Callable[[T], str] = str) -> tuple[T, ...]:
    """The items of a split in their order; for `"all"`, every one.

    Raises:
        ValueError: the split is unknown, or none of the items is in it.
    """
    if arguments.one_of("split", split, SPLITS) == "all":
        return tuple(items)
    kept = tuple(item for item in items if part_of(key(item)) == split)
    if not kept:
        raise ValueError(f"split {split!r} holds none of the {len(items)} items; use split 'all' or give more items")
    return kept


def draw_of_split(draw: Callable[[], T], split: str, key: Callable[[T], Any] = str) -> T:
    """Calls `draw`, which makes a random item, until the item is of the split.

    Raises:
        ValueError: the split is unknown, or 1,000 items in a row were of the other part.
    """
    if arguments.one_of("split", split, SPLITS) == "all":
        return draw()
    for _ in range(1000):
        item = draw()
        if part_of(str(key(item))) == split:
            return item
    raise ValueError(f"none of 1,000 drawn items is of split {split!r}: there are too few different ones; use 'all'")
