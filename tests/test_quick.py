"""The mark `quick` leaves out the cases that it should, and no others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests import quick

CASES = [
    (f"{game}-{size}", {"game": game, "size": size}) for game, size in product(("kuhn", "nim", "leduc"), ("1", "2"))
]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ((), ["kuhn-1", "nim-2", "leduc-1"]),
        ((2,), ["kuhn-1", "nim-2"]),
        ((9,), [name for name, _ in CASES]),
        (("nim*", "leduc-2"), ["nim-1", "nim-2", "leduc-2"]),
        (("kun*",), []),
    ],
)
def test_some_cases_are_kept(arguments: tuple[Any, ...], kept: list[str]) -> None:
    assert [CASES[number][0] for number in sorted(quick.kept(arguments, CASES))] == kept


def test_one_case_that_is_asked_for_is_kept() -> None:
    assert quick.kept((), CASES[3:4]) == quick.kept((2,), CASES[3:4]) == {0}


@pytest.mark.quick("a")
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_others_are_slow(name: str, pytestconfig: pytest.Config) -> None:
    assert name == "a" or pytestconfig.option.markexpr != "not slow"
