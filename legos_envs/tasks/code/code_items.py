"""Small programming exercises with a reference, test inputs, and programs that are almost right.

They come from `data/exercises.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Item(NamedTuple):
    """One exercise."""

    name: str
    """The name of the function."""
    signature: str
    spec: str
    reference: str
    """Source of the right function."""
    wrong: tuple[str, ...]
    """Sources of functions that are almost right."""
    calls: tuple[list[Any], ...]
    """Argument lists to test it on: Python literals that JSON can represent too."""


def _item(signature: str, spec: str, body: str, wrong: Sequence[tuple[str, str]], calls: Sequence[list[Any]]) -> Item:
    """An item whose wrong programs each replace one piece of the right one's body."""
    head = f"def {signature}:\n"
    for old, _ in wrong:
        assert body.count(old) == 1, f"{signature}: {old!r} must occur once in the body"
    sources = [head + body.replace(old, new) for old, new in wrong]
    return Item(signature.partition("(")[0], f"def {signature}:", spec, head + body, tuple(sources), tuple(calls))


FILE = Path(__file__).with_name("data") / "exercises.toml"
ITEMS = {item.name: item for item in (_item(**row) for row in tomllib.loads(FILE.read_text(encoding="utf-8"))["item"])}
"""All items by name."""
