"""Splits items into training and testing: a fixed fifth of all items, chosen by hash, is held out.

An item's split depends only on its text, not on its position in a list or on a seed. So training environments,
evaluation environments and the recipe of the bundled model hold out the same fifth, and generated items are split
without enumerating them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from legos_envs import arguments

T = TypeVar("T")
SPLITS = ("all", "train", "test")
TEST_SHARE = 5
"""One in this many items is a test item."""


def part_of(item: str) -> str:
    """`"test"` or `"train"`, a function of the item's identity: its question, its operands, its name."""
    digest = hashlib.sha256(f"split {item}".encode()).digest()
    return "train" if int.from_bytes(digest[:4], "big") % TEST_SHARE else "test"


def of_split(items: Sequence[T], split: str, key: Callable[[T], str] = str) -> tuple[T, ...]:
    """The items of a split, in order; for `"all"`, every item.

    Raises:
        ValueError: the split is unknown or empty.
    """
    if arguments.one_of("split", split, SPLITS) == "all":
        return tuple(items)
    kept = tuple(item for item in items if part_of(key(item)) == split)
    if not kept:
        raise ValueError(f"split {split!r} holds none of the {len(items)} items; use split 'all' or give more items")
    return kept


def draw_of_split(draw: Callable[[], T], split: str, key: Callable[[T], Any] = str) -> T:
    """Calls `draw`, which returns a random item, until the item is in the split.

    Raises:
        ValueError: the split is unknown, or 1,000 items in a row were in the other one.
    """
    if arguments.one_of("split", split, SPLITS) == "all":
        return draw()
    for _ in range(1000):
        item = draw()
        if part_of(str(key(item))) == split:
            return item
    raise ValueError(f"none of 1,000 drawn items is in split {split!r}: there are too few distinct items; use 'all'")
