r"""Compares polynomials and fractions of polynomials without any symbolic work: by their values at one far-away point.

    value("(x+1)^{9001} - y") == value("-y + (1+x)^{9001}")   # microseconds, for any exponent

Each letter stands for a fixed number, and everything is computed modulo a 127-bit prime. Equal formulas have equal
values; different ones have equal values with probability degree / 2^127 (Schwartz 1980). Anything but plain arithmetic
with letters (roots, functions, sets, equations) has no value here and is left to math-verify.
"""

from __future__ import annotations

import hashlib
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

PRIME = 2**127 - 1
MAX_DEPTH = 40
"""Maximum nesting of brackets; deeper formulas have no value here."""
MAX_EXPONENT = 10**9
TOKEN = re.compile(
    r"\s*(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+|(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:[0-9A-Za-z]|\{[0-9A-Za-z]+\}))?|[-+*/^(){}])"
)
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega"
)
GREEK = frozenset(f"{_GREEK} varepsilon vartheta varphi Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split())
CONSTANTS = frozenset(("e", "i", "I", "E", "\\pi"))
"""Symbols with a fixed value: formulas that differ here may still be equal, such as `i^2` and `-1`."""
FUNCTION_NAMES = frozenset("fgh")
"""`f(x)` is not a product."""


class Value(NamedTuple):
    """The value of a formula."""

    number: int
    """Equal numbers mean equal formulas."""
    exact: bool
    """Whether different numbers also mean different formulas; not with decimals, which may be rounded, nor with
    constants."""


class _Unread(Exception):
    """The formula is not plain arithmetic with letters."""


@lru_cache(1 << 12)
def value(text: str) -> Value | None:
    """The value of a formula in plain or LaTeX notation; None if it is not a polynomial or a fraction of two.

    Linear time. Never raises.
    """
    try:
        reader = _Reader(text)
        number = reader.sum(0)
        if reader.left:
            return None
    except (_Unread, ValueError):  # ValueError: thousands of digits
        return None
    return Value(number, reader.exact)


@lru_cache(1 << 10)
def _at(symbol: str) -> int:
    """The number that a letter stands for."""
    return int.from_bytes(hashlib.blake2b(symbol.encode(), digest_size=16, person=b"legos algebra").digest()) % PRIME


def _inverse(number: int) -> int:
    if not number % PRIME:
        raise _Unread
    return pow(number, -1, PRIME)


class _Reader:
    """Parses a formula from left to right, evaluating it on the way."""

    def __init__(self, text: str):
        self.exact = True
        self.tokens = list(_tokens(text))[::-1]

    @property
    def left(self) -> bool:
        return bool(self.tokens)

    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self, *expected: str) -> str:
        if not self.tokens or (expected and self.tokens[-1] not in expected):
            raise _Unread
        return self.tokens.pop()

    def sum(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _Unread
        result = self.product(depth)
        while self.next() in ("+", "-"):
            sign = self.take()
            part = self.product(depth)
            result = (result + part if sign == "+" else result - part) % PRIME
        return result

    def product(self, depth: int) -> int:
        sign = 1
        if self.next() in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
        result, divided = sign * self.power(depth), False
        while (part := self.next()) and part not in "+-)}":
            if part in ("*", "/"):
                divided = self.take() == "/"
                factor = self.power(depth)
                result *= _inverse(factor) if divided else factor
            elif divided or part[0] in "0123456789.":  # 1/2x is ambiguous, and so is 2 3
                raise _Unread
            else:
                result *= self.power(depth)
            result %= PRIME
        return result % PRIME

    def power(self, depth: int) -> int:
        base = self.atom(depth)
        if self.next() != "^":
            return base
        self.take()
        exponent = self.exponent()
        if self.next() == "^":
            raise _Unread
        return pow(base if exponent >= 0 else _inverse(base), abs(exponent), PRIME)

    def exponent(self) -> int:
        """A whole number, bare (people write x^10 for the tenth power, though LaTeX does not) or in braces."""
        braced = self.next() == "{"
        if braced:
            self.take()
        sign = -1 if self.next() == "-" else 1
        if sign < 0:
            self.take()
        digits = self.take()
        if not digits.isdecimal() or len(digits) > len(str(MAX_EXPONENT)) or int(digits) > MAX_EXPONENT:
            raise _Unread
        if braced:
            self.take("}")
        return sign * int(digits)

    def atom(self, depth: int) -> int:
        part = self.take()
        if part in ("(", "{"):
            result = self.sum(depth + 1)
            self.take(")" if part == "(" else "}")
            return result
        if part == "\\frac":
            top, bottom = self.argument(depth), self.argument(depth)
            return top * _inverse(bottom) % PRIME
        if part[0] in "0123456789.":
            if self.next() == "\\frac":  # a mixed number, or a product
                raise _Unread
            if "." in part:
                self.exact = False
            number = Fraction(part)
            return number.numerator * _inverse(number.denominator) % PRIME
        if not (part[0].isalpha() or part[0] == "\\") or (part in FUNCTION_NAMES and self.next() == "("):
            raise _Unread
        self.exact &= part not in CONSTANTS
        return _at(part)

    def argument(self, depth: int) -> int:
        """One argument of a command: in braces, or a single digit or letter."""
        if self.next() == "{":
            return self.atom(depth)
        part = self.take()
        if not part.isalnum() or not part.isascii():
            raise _Unread
        if len(part) > 1:  # \frac12: the digits after the first are put back
            self.tokens.append(part[1:])
        return self._single(part[0])

    def _single(self, part: str) -> int:
        self.exact &= part not in CONSTANTS
        return int(part) if part.isdecimal() else _at(part)


def _tokens(text: str) -> list[str]:
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise _Unread
        part = match.group().strip()
        if part in ("\\cdot", "\\times"):
            part = "*"
        elif part[0] == "\\" and part not in ("\\frac", "\\pi") and part[1:].partition("_")[0] not in GREEK:
            raise _Unread
        found.append(part.replace("_{", "_").removesuffix("}") if len(part) > 1 else part)
        place = match.end()
    run = re.search(r"[A-Za-z]{3}|(?<![A-Za-z\\])ln", re.sub(r"\\[A-Za-z]+", " ", text))
    if run:  # a function's name, or a word
        raise _Unread
    return found
