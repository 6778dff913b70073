"""Families of one-line functions: each draws its constants and describes the result in words and in code.

Every family has three programs that are almost right: right on some of its calls, but wrong on the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.random import Generator

from legos_envs.tasks.code.input_domains import Domain, Int, Ints, Text

LETTERS = "abcdexyz"
WORDS = ("cat", "dog", "fox", "hen", "owl", "bee", "ant", "cow", "pig", "rat", "bat", "ram", "elk", "cod", "eel", "yak")
LONG = [5, 1, 7, 3, 9, 2, 8]


class Family(NamedTuple):
    """A function drawn from a family."""

    returns: str
    """What the function returns, in words."""
    right: str
    """The expression that computes it."""
    wrong: tuple[str, str, str]
    """Expressions that are almost right."""
    calls: list[list[Any]]
    """Arguments to test it on. The first ones distinguish each wrong expression from the right one."""
    parameters: dict[str, str]
    """The types of the arguments by name."""
    result: str
    domain: Domain


FAMILIES: list[Callable[[Generator], Family]] = []
"""Every family."""


def family(parameters: dict[str, str], result: str, *domain: Int | Ints | Text) -> Callable[..., Any]:
    """Registers a function that draws a family's words, expressions and calls."""

    def add(make: Callable[[Generator], tuple[str, str, tuple[str, str, str], list[Any]]]) -> Any:
        def drawn(rng: Generator) -> Family:
            returns, right, wrong, calls = make(rng)
            rows = [list(call) if isinstance(call, tuple) else [call] for call in calls]
            return Family(returns, right, wrong, rows, parameters, result, domain)

        FAMILIES.append(drawn)
        return make

    return add


def _two(rng: Generator) -> tuple[str, str]:
    """Two different letters."""
    first, second = rng.permutation(len(LETTERS))[:2]
    return LETTERS[first], LETTERS[second]


NUMBER = ({"n": "int"}, "int", Int(-20, 20))
TRUTH = ({"n": "int"}, "bool", Int(-20, 20))
LIST = ({"values": "list[int]"}, "list[int]", Ints())
MEASURE = ({"values": "list[int]"}, "int", Ints())
TEXT = ({"text": "str"}, "str", Text(LETTERS))


@family(*NUMBER)
def times_plus(rng: Generator) -> Any:
    a, b = (rng.permutation(8) + 2)[:2].tolist()
    wrong = (f"n * {b} + {a}", f"n + {a} * {b}", f"abs(n) * {a} + {b}")
    return f"n times {a}, plus {b}", f"n * {a} + {b}", wrong, [-3, 1, b, 0, -1, 10]


@family(*NUMBER)
def times_minus(rng: Generator) -> Any:
    a, b = (rng.permutation(8) + 2)[:2].tolist()
    wrong = (f"n * {b} - {a}", f"n - {a} * {b}", f"abs(n) * {a} - {b}")
    return f"n times {a}, minus {b}", f"n * {a} - {b}", wrong, [-11, -1, -b, 4, 0, 10]


@family(*NUMBER)
def at_most(rng: Generator) -> Any:
    a = int(rng.integers(-12, 13))
    wrong = (f"max(n, {a})", "n", f"min(n, {a - 1})")
    return f"n, but at most {a}", f"min(n, {a})", wrong, [a + 5, a, a - 4, a + 1, a - 1, a - 6]


@family(*NUMBER)
def at_least(rng: Generator) -> Any:
    a = int(rng.integers(-12, 13))
    wrong = (f"min(n, {a})", "n", f"max(n, {a + 1})")
    return f"n, but at least {a}", f"max(n, {a})", wrong, [a - 5, a, a + 4, a - 1, a + 1, a + 6]


@family(*NUMBER)
def remainder(rng: Generator) -> Any:
    a = int(rng.integers(3, 10))
    wrong = (f"n // {a}", f"n % {a + 1}", f"n - {a}")
    return f"the remainder of n divided by {a}", f"n % {a}", wrong, [2 * a + 1, 1, 0, a, a + 2, 2 * a]


@family(*TRUTH)
def greater(rng: Generator) -> Any:
    a = int(rng.integers(-15, 16))
    wrong = (f"n >= {a}", f"n == {a}", f"n > {a - 2}")
    return f"whether n is greater than {a}", f"n > {a}", wrong, [a, a + 1, a - 1, a + 5, a - 5, a + 2]


@family(*TRUTH)
def less(rng: Generator) -> Any:
    a = int(rng.integers(-15, 16))
    wrong = (f"n <= {a}", f"n == {a}", f"n < {a + 2}")
    return f"whether n is less than {a}", f"n < {a}", wrong, [a, a - 1, a + 1, a - 5, a + 5, a - 2]


@family({"x": "int", "y": "int"}, "int", Int(-20, 20), Int(-20, 20))
def plus_times(rng: Generator) -> Any:
    a = int(rng.integers(2, 20))
    wrong = (f"x * {a} + y", f"x + {a}", "x + y")
    return f"x plus {a} times y", f"x + {a} * y", wrong, [(2, 5), (3, 3), (4, 1), (6, 0), (-1, 2), (1, 1)]


@family(*LIST)
def above(rng: Generator) -> Any:
    a = int(rng.integers(-5, 6))
    right = f"[x for x in values if x > {a}]"
    wrong = (right.replace(">", ">="), right.replace(">", "<"), f"sorted({right})")
    calls = [[a + 3, a, a - 1, a + 1], [], [a + 1, a + 2], [a], [a - 2, a + 4, a - 3], [a + 2, a + 2]]
    return f"the values greater than {a}, in their order", right, wrong, calls


@family(*LIST)
def below(rng: Generator) -> Any:
    a = int(rng.integers(-5, 6))
    right = f"[x for x in values if x < {a}]"
    wrong = (right.replace("<", "<="), right.replace("<", ">"), f"sorted({right})")
    calls = [[a - 1, a, a + 1, a - 3], [], [a - 2, a - 1], [a], [a + 2, a - 4, a + 3], [a - 2, a - 2]]
    return f"the values less than {a}, in their order", right, wrong, calls


@family(*LIST)
def each_plus(rng: Generator) -> Any:
    a = int(rng.integers(2, 20))
    right = f"[x + {a} for x in values]"
    wrong = (right.replace("+", "-"), right.replace("+", "*"), f"[x + {a} for x in values[:2]]")
    return f"the values, each plus {a}", right, wrong, [[3, -4, 1], [], [5, 2], [-1], [1, 2, 3, 4], [0]]


@family(*LIST)
def each_times(rng: Generator) -> Any:
    a = int(rng.integers(2, 20))
    right = f"[x * {a} for x in values]"
    wrong = (right.replace("*", "+"), f"values * {a}", f"[x * {a} for x in values[:2]]")
    return f"the values, each times {a}", right, wrong, [[3, -4, 1], [], [5, 2], [-1], [1, 2, 3, 4], [0]]


@family(*LIST)
def first(rng: Generator) -> Any:
    k = int(rng.integers(2, 6))
    wrong = (f"values[{k}:]", f"values[-{k}:]", f"values[:{k - 1}]")
    return f"the first {k} of the values", f"values[:{k}]", wrong, [LONG, [], [4], LONG[:k], LONG[1:], LONG[: k + 1]]


@family(*LIST)
def last(rng: Generator) -> Any:
    k = int(rng.integers(2, 6))
    wrong = (f"values[:{k}]", f"values[{k}:]", f"values[-{k - 1}:]")
    return f"the last {k} of the values", f"values[-{k}:]", wrong, [LONG, [], [4], LONG[:k], LONG * 2, LONG[: k + 1]]


@family(*LIST)
def without_first(rng: Generator) -> Any:
    k = int(rng.integers(2, 6))
    wrong = (f"values[:{k}]", f"values[-{k}:]", f"values[{k - 1}:]")
    calls = [LONG, [], [4] * 2 * k, LONG[:k], LONG * 2, [4]]
    return f"the values without the first {k}", f"values[{k}:]", wrong, calls


@family(*MEASURE)
def how_many(rng: Generator) -> Any:
    a = int(rng.integers(-8, 9))
    wrong = (f"values.count({a + 1})", f"int({a} in values)", "len(values)")
    return (
        f"how many of the values are {a}",
        f"values.count({a})",
        wrong,
        [[a, a, a + 1], [], [a], [11, 12], [a, a], [10]],
    )


@family(*MEASURE)
def sum_plus(rng: Generator) -> Any:
    a = int(rng.integers(2, 40))
    wrong = (f"max(values) + {a}", f"len(values) + {a}", f"sum(values[1:]) + {a}")
    return (
        f"the sum of the values, plus {a}",
        f"sum(values) + {a}",
        wrong,
        [[4, 2, 3], [], [5], [1], [0, 6], [-2, -3]],
    )


@family(*TEXT)
def followed_by(rng: Generator) -> Any:
    word = WORDS[int(rng.integers(len(WORDS)))]
    wrong = (f"'{word}' + text", "text + text", f"text or '{word}'")
    return f"text followed by '{word}'", f"text + '{word}'", wrong, ["xyz", "", word, "a", "bad", "ab"]


@family(*TEXT)
def preceded_by(rng: Generator) -> Any:
    word = WORDS[int(rng.integers(len(WORDS)))]
    wrong = (f"text + '{word}'", "text + text", f"text or '{word}'")
    return f"text with '{word}' before it", f"'{word}' + text", wrong, ["xyz", "", word, "a", "bad", "ab"]


@family(*TEXT)
def replaced(rng: Generator) -> Any:
    c, d = _two(rng)
    wrong = (f"text.replace('{d}', '{c}')", f"text.replace('{c}', '')", f"text.replace('{c}', '{d}', 1)")
    calls = [c + c + d, "", "q", c, d, c + "q" + c]
    return f"text with every '{c}' replaced by '{d}'", f"text.replace('{c}', '{d}')", wrong, calls


@family(*TEXT)
def repeated(rng: Generator) -> Any:
    k = int(rng.integers(3, 10))
    wrong = (f"text * {k - 1}", f"text[:1] * {k}", f"text[::-1] * {k}")
    return f"text repeated {k} times", f"text * {k}", wrong, ["ab", "", "a", "aba", "xx", "abcd"]


@family({"text": "str"}, "int", Text(LETTERS))
def letters(rng: Generator) -> Any:
    c, d = _two(rng)
    wrong = (f"text.count('{d}')", f"int('{c}' in text)", "len(text)")
    return f"how often '{c}' is in text", f"text.count('{c}')", wrong, [c + c + d, "", c, "q", c * 3, d]


@family({"text": "str"}, "bool", Text(LETTERS))
def begins(rng: Generator) -> Any:
    c, d = _two(rng)
    wrong = (f"text.endswith('{c}')", f"'{c}' in text", "text != ''")
    return f"whether text begins with '{c}'", f"text.startswith('{c}')", wrong, [d + c, "", c, d, c + d, d * 2]


@family({"text": "str"}, "bool", Text(LETTERS))
def ends(rng: Generator) -> Any:
    c, d = _two(rng)
    wrong = (f"text.startswith('{c}')", f"'{c}' in text", "text != ''")
    return f"whether text ends with '{c}'", f"text.endswith('{c}')", wrong, [c + d, "", c, d, d + c, d * 2]
