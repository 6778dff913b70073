"""Which cases of a parametrised test run by default, where it is marked `quick`; the others are slow.

`@pytest.mark.quick("a*", "b")` keeps the cases whose ids match, `quick(3)` three cases spread over all, and `quick`
alone as many as it takes for every value of every parameter to occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch


def kept(arguments: Sequence[object], cases: Sequence[tuple[str, Mapping[str, object]]]) -> set[int]:
    """The numbers of the cases that the arguments of the mark keep; a case is its id and its parameters."""
    if not arguments:
        return _every_value([{(name, id(value)) for name, value in params.items()} for _, params in cases])
    if isinstance(count := arguments[0], int):
        return {number * len(cases) // count for number in range(count)}
    patterns = [str(pattern) for pattern in arguments]
    return {number for number, (name, _) in enumerate(cases) if any(fnmatch(name, one) for one in patterns)}


def _every_value(cases: Sequence[set[tuple[str, int]]]) -> set[int]:
    found: set[int] = set()
    left = set().union(*cases)
    while left:
        best = max(range(len(cases)), key=lambda number: len(left & cases[number]))
        left -= cases[best]
        found.add(best)
    return found
