"""Small functions to find and patch: most have a bug, some have none; a reference says what is right.

Written for this project. `witness` is an argument list on which a buggy function differs from its reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from legos_envs.tasks.code.input_domains import Domain, Int, Ints, Text


@dataclass(frozen=True)
class PatchItem:
    """A function with its specification, as it is found (`code`) and as it should be (`reference`)."""

    name: str
    spec: str
    domain: Domain
    code: str
    reference: str
    witness: tuple[Any, ...] | None = None
    """Arguments that show the bug; None when there is none."""

    def holds(self, arguments: Any) -> bool:
        """Whether these are arguments of the stated domain."""
        if not isinstance(arguments, list) or len(arguments) != len(self.domain):
            return False
        return all(part.holds(value) for part, value in zip(self.domain, arguments))

    def told(self) -> str:
        """Specification and domain, for a prompt."""
        parameters = self.code.partition("(")[2].partition(")")[0].split(", ")
        lines = [f"- {parameter}: {part}" for parameter, part in zip(parameters, self.domain)]
        return "\n".join([f"`{self.name}` {self.spec}", "Arguments:", *lines])


def _item(name: str, spec: str, domain: Domain, code: str, reference: str = "", witness: Any = None) -> PatchItem:
    """An item of indented code; without a reference its code is right."""
    return PatchItem(name, spec, domain, dedent(code).strip(), dedent(reference or code).strip(), witness)


LOWER = "abcxyz "
ITEMS = (
    _item(
        "second_largest",
        "returns the second largest of the different values, or None when there are fewer than two.",
        (Ints(),),
        """
        def second_largest(values):
            if len(values) < 2:
                return None
            return sorted(values)[-2]
        """,
        """
        def second_largest(values):
            different = sorted(set(values))
            return different[-2] if len(different) > 1 else None
        """,
        ([3, 3],),
    ),
    _item(
        "is_leap",
        "tells whether a year of the Gregorian calendar is a leap year.",
        (Int(1600, 2400),),
        """
        def is_leap(year):
            return year % 4 == 0 and year % 100 != 0
        """,
        """
        def is_leap(year):
            return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        """,
        (2000,),
    ),
    _item(
        "rotate",
        "returns the list with its last k values moved to the front, one at a time; k may be larger than the list.",
        (Ints(), Int(0, 20)),
        """
        def rotate(values, k):
            return values[-k:] + values[:-k]
        """,
        """
        def rotate(values, k):
            if not values:
                return []
            k = k % len(values)
            return values[len(values) - k:] + values[:len(values) - k]
        """,
        ([1, 2, 3], 4),
    ),
    _item(
        "digit_sum",
        "returns the sum of the decimal digits of n; a minus sign does not matter.",
        (Int(-9999, 9999),),
        """
        def digit_sum(n):
            total = 0
            while n > 0:
                total += n % 10
                n = n // 10
            return total
        """,
        """
        def digit_sum(n):
            n = abs(n)
            total = 0
            while n > 0:
                total += n % 10
                n = n // 10
            return total
        """,
        (-12,),
    ),
    _item(
        "merge",
        "merges two ascending lists into one ascending list.",
        (Ints(ordered=True), Ints(ordered=True)),
        """
        def merge(a, b):
            out = []
            i = j = 0
            while i < len(a) and j < len(b):
                if a[i] <= b[j]:
                    out.append(a[i])
                    i += 1
                else:
                    out.append(b[j])
                    j += 1
            return out + a[i:]
        """,
        """
        def merge(a, b):
            return sorted(a + b)
        """,
        ([1], [2]),
    ),
    _item(
        "longest_run",
        "returns the length of the longest run of equal neighbours; 0 for an empty list.",
        (Ints(),),
        """
        def longest_run(values):
            best = run = 0
            for i in range(len(values)):
                if i and values[i] == values[i - 1]:
                    run += 1
                else:
                    best = max(best, run)
                    run = 1
            return best
        """,
        """
        def longest_run(values):
            best = run = 0
            for i in range(len(values)):
                run = run + 1 if i and values[i] == values[i - 1] else 1
                best = max(best, run)
            return best
        """,
        ([5],),
    ),
    _item(
        "find",
        "returns the index of the first value equal to target in an ascending list, or -1.",
        (Ints(ordered=True), Int(-9, 9)),
        """
        def find(values, target):
            low, high = 0, len(values)
            while low < high:
                middle = (low + high) // 2
                if values[middle] == target:
                    return middle
                if values[middle] < target:
                    low = middle + 1
                else:
                    high = middle
            return -1
        """,
        """
        def find(values, target):
            for i in range(len(values)):
                if values[i] == target:
                    return i
            return -1
        """,
        ([4, 4], 4),
    ),
    _item(
        "shift",
        "moves every letter a to z by k places in the alphabet, from z on to a; other characters stay.",
        (Text(LOWER), Int(0, 25)),
        """
        def shift(text, k):
            out = ''
            for c in text:
                out += chr(ord(c) + k) if 'a' <= c <= 'z' else c
            return out
        """,
        """
        def shift(text, k):
            out = ''
            for c in text:
                out += chr((ord(c) - 97 + k) % 26 + 97) if 'a' <= c <= 'z' else c
            return out
        """,
        ("z", 1),
    ),
    _item(
        "gcd",
        "returns the greatest common divisor of a and b; gcd(0, 0) is 0.",
        (Int(0, 500), Int(0, 500)),
        """
        def gcd(a, b):
            for d in range(min(a, b), 0, -1):
                if a % d == 0 and b % d == 0:
                    return d
            return 0
        """,
        """
        def gcd(a, b):
            while b:
                a, b = b, a % b
            return a
        """,
        (0, 6),
    ),
    _item(
        "encode",
        "writes each run of equal characters as the character and the run's length: 'aab' becomes 'a2b1'.",
        (Text("abc"),),
        """
        def encode(text):
            out = ''
            count = 1
            for i in range(1, len(text) + 1):
                if i < len(text) and text[i] == text[i - 1]:
                    count += 1
                else:
                    out += text[i - 1] + str(count)
            return out
        """,
        """
        def encode(text):
            out = ''
            count = 1
            for i in range(1, len(text) + 1):
                if i < len(text) and text[i] == text[i - 1]:
                    count += 1
                elif text:
                    out += text[i - 1] + str(count)
                    count = 1
            return out
        """,
        ("aab",),
    ),
    _item(
        "to_base",
        "writes n in the given base, with the digits 0 to 9.",
        (Int(0, 1000), Int(2, 10)),
        """
        def to_base(n, base):
            digits = ''
            while n > 0:
                digits = str(n % base) + digits
                n = n // base
            return digits
        """,
        """
        def to_base(n, base):
            digits = ''
            while n > 0:
                digits = str(n % base) + digits
                n = n // base
            return digits or '0'
        """,
        (0, 2),
    ),
    _item(
        "best_sum",
        "returns the largest sum of a stretch of neighbours with at least one value.",
        (Ints(least=1),),
        """
        def best_sum(values):
            best = here = 0
            for value in values:
                here = max(0, here + value)
                best = max(best, here)
            return best
        """,
        """
        def best_sum(values):
            best = here = values[0]
            for value in values[1:]:
                here = max(value, here + value)
                best = max(best, here)
            return best
        """,
        ([-3],),
    ),
    _item(
        "balanced",
        "tells whether every bracket of ( ) [ ] is closed by its own kind, in the right order.",
        (Text("()[]"),),
        """
        def balanced(text):
            depth = 0
            for c in text:
                depth += 1 if c in '([' else -1
                if depth < 0:
                    return False
            return depth == 0
        """,
        """
        def balanced(text):
            open_ones = []
            for c in text:
                if c in '([':
                    open_ones.append(c)
                elif not open_ones or open_ones.pop() + c not in ('()', '[]'):
                    return False
            return not open_ones
        """,
        ("(]",),
    ),
    _item(
        "median",
        "returns the middle value of the sorted list; of two middle values the smaller.",
        (Ints(least=1),),
        """
        def median(values):
            return sorted(values)[len(values) // 2]
        """,
        """
        def median(values):
            return sorted(values)[(len(values) - 1) // 2]
        """,
        ([1, 2],),
    ),
    _item(
        "count_vowels",
        "counts the letters a, e, i, o, u, capital ones too.",
        (Text("aeiouAEIOUbxT "),),
        """
        def count_vowels(text):
            return sum(1 for c in text if c in 'aeiou')
        """,
        """
        def count_vowels(text):
            return sum(1 for c in text.lower() if c in 'aeiou')
        """,
        ("A",),
    ),
    _item(
        "is_palindrome",
        "tells whether the text without its spaces reads the same backwards.",
        (Text(LOWER),),
        """
        def is_palindrome(text):
            letters = text.replace(' ', '')
            return letters == letters[::-1]
        """,
    ),
    _item(
        "unique",
        "returns the values without repetitions, in the order of their first appearance.",
        (Ints(),),
        """
        def unique(values):
            out = []
            for value in values:
                if value not in out:
                    out.append(value)
            return out
        """,
    ),
    _item(
        "fibonacci",
        "returns the n-th Fibonacci number; the first ones are 0, 1, 1, 2, counted from n = 0.",
        (Int(0, 60),),
        """
        def fibonacci(n):
            a, b = 0, 1
            for _ in range(n):
                a, b = b, a + b
            return a
        """,
    ),
    _item(
        "count_steps",
        "counts the steps to 1, where an even n becomes n / 2 and an odd n becomes 3n + 1.",
        (Int(1, 200),),
        """
        def count_steps(n):
            steps = 0
            while n != 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1
            return steps
        """,
    ),
    _item(
        "differences",
        "returns the differences of neighbours: each value minus the one before it.",
        (Ints(),),
        """
        def differences(values):
            return [values[i] - values[i - 1] for i in range(1, len(values))]
        """,
    ),
)
BY_NAME = {item.name: item for item in ITEMS}
