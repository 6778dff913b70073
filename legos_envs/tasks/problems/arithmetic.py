"""Arithmetic expressions as text: whole numbers, `+ - * /`, parentheses. Parsed and evaluated here, never by `eval`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

MAX_CHARS = 200
MAX_DIGITS = 6
LARGEST = 10**12
"""Numerator and denominator of an expression's value stay below this, so that the answer can be written down."""
TOKEN = re.compile(r"\s*(?:([0-9]+)|([-+*/()]))")
SPELLED = str.maketrans({"×": "*", "·": "*", "÷": "/", "\N{MINUS SIGN}": "-", "–": "-"})
STRENGTH = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}
APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


class BadExpression(ValueError):
    """The text is not an expression that can be evaluated; the message says why."""


class Expression(NamedTuple):
    """A parsed expression."""

    tokens: tuple[str, ...]
    value: Fraction
    operations: int
    """Number of binary operators `+ - * /` in it."""
    key: str
    """Equal regardless of spacing, redundant parentheses and the order of summands and factors: its parts in evaluation
    order, with those of sums and products sorted."""


Part = tuple[str, tuple[str, ...]]
"""An operator with the keys of its operands, two or more for `+` and `*`; for a number, the number alone."""


def read(text: str) -> Expression:
    """Parses and evaluates an expression exactly, in linear time and without recursion (shunting-yard).

    Raises:
        BadExpression: the text is too long, has other characters, does not parse, divides by zero or has too large a
            value.
    """
    if len(text) > MAX_CHARS:
        raise BadExpression(f"it has {len(text)} characters; at most {MAX_CHARS} are read.")
    tokens = _tokens(text.translate(SPELLED).strip().removesuffix("= ?").removesuffix("=?").rstrip(" ="))
    values: list[Fraction] = []
    parts: list[Part] = []
    waiting: list[str] = []
    operations = 0
    value_next = True  # whether a number comes next, not an operator

    def reduce(least: int) -> None:
        """Applies the operators that bind at least as strongly as the next one."""
        while waiting and STRENGTH[waiting[-1]] >= least:
            operator = waiting.pop()
            right = values.pop()
            after = parts.pop()
            parts.append((operator, (_key(after),)) if operator == "negate" else _joined(operator, parts.pop(), after))
            if operator == "negate":
                values.append(-right)
                continue
            if operator == "/" and not right:
                raise BadExpression("it divides by zero.")
            values.append(APPLY[operator](values.pop(), right))

    for sign in tokens:
        if value_next:
            if sign.isdigit():
                values.append(Fraction(int(sign)))
                parts.append((str(int(sign)), ()))
                value_next = False
            elif sign in ("(", "-"):
                waiting.append("(" if sign == "(" else "negate")
            else:
                raise BadExpression(f"a number is missing before {sign!r}.")
        elif sign == ")":
            reduce(1)
            if not waiting:
                raise BadExpression("a ')' closes nothing.")
            waiting.pop()
        elif sign in APPLY:
            reduce(STRENGTH[sign])
            waiting.append(sign)
            operations += 1
            value_next = True
        else:
            raise BadExpression(f"an operator is missing before {sign!r}.")
    if value_next:
        raise BadExpression("it ends where a number should stand." if tokens else "it is empty.")
    reduce(1)
    if waiting:
        raise BadExpression("a '(' is not closed.")
    (value,) = values
    if max(abs(value.numerator), value.denominator) >= LARGEST:
        raise BadExpression(f"its value must stay below {LARGEST:,}.")
    return Expression(tokens, value, operations, _key(parts[0]))


def _key(part: Part) -> str:
    operator, joined = part
    return f"({' '.join(joined)} {operator})" if joined else operator


def _joined(operator: str, before: Part, after: Part) -> Part:
    """Joins two parts. Sums of sums and products of products become one sorted list."""
    if operator not in "+*":
        return operator, (_key(before), _key(after))
    joined = [key for part in (before, after) for key in (part[1] if part[0] == operator else (_key(part),))]
    return operator, tuple(sorted(joined))


def _tokens(text: str) -> tuple[str, ...]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise BadExpression(f"{text[at:].lstrip()[0]!r} is not a whole number, one of + - * / or a parenthesis.")
        token = match.group(1) or match.group(2)
        if len(token) > MAX_DIGITS:
            raise BadExpression(f"a number has {len(token)} digits; at most {MAX_DIGITS} are read.")
        tokens.append(token)
        at = match.end()
    return tuple(tokens)
