"""Small programming exercises with a reference, inputs to try it on, and programs that are almost right.

Every wrong program differs from its reference on at least one of the first five calls of its item.
All values are JSON, so that programs run anywhere and results can be compared outside.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Lists of arguments to try it on."""


def _item(signature: str, spec: str, body: str, wrong: Sequence[tuple[str, str]], calls: Sequence[list[Any]]) -> Item:
    """An item whose wrong programs come from the right one by replacing one piece of its body."""
    head = f"def {signature}:\n"
    for old, _ in wrong:
        assert body.count(old) == 1, f"{signature}: {old!r} must occur once in the body"
    sources = [head + body.replace(old, new) for old, new in wrong]
    return Item(signature.partition("(")[0], f"def {signature}:", spec, head + body, tuple(sources), tuple(calls))


_ITEMS = [
    _item(
        "is_palindrome(text: str) -> bool",
        "Whether the letters and digits of text read the same in both directions, ignoring case.",
        "    kept = [c.lower() for c in text if c.isalnum()]\n    return kept == kept[::-1]",
        [("c.lower()", "c"), (" if c.isalnum()", ""), ("kept[::-1]", "kept[::-1][:2] + kept[2:]")],
        [["Anna"], ["nurses run"], ["abxdba"], [""], ["Was it a car?"], ["a1b"], ["No lemon, no melon"]],
    ),
    _item(
        "count_vowels(text: str) -> int",
        "How many of the letters a, e, i, o, u text has, capitals included.",
        "    return sum(1 for c in text if c in 'aeiouAEIOU')",
        [("'aeiouAEIOU'", "'aeiou'"), ("'aeiouAEIOU'", "'aeioAEIO'"),
         ("sum(1 for c in text if c in 'aeiouAEIOU')", "len({c for c in text if c in 'aeiouAEIOU'})")],
        [["Apple"], ["unusual"], ["banana"], [""], ["rhythm"], ["AEIOU"], ["Otto"]],
    ),
    _item(
        "second_largest(numbers: list[int])",
        "The second largest of the different numbers in the list; None when there are fewer than two different ones.",
        "    kinds = sorted(set(numbers))\n    return kinds[-2] if len(kinds) > 1 else None",
        [("set(numbers)", "numbers"), ("kinds[-2]", "kinds[1]"), ("else None", "else 0")],
        [[[5, 5, 3, 1]], [[7]], [[1, 2, 3, 4]], [[-4, -9]], [[]], [[2, 2]], [[10, 3, 10, 8]]],
    ),
    _item(
        "running_total(numbers: list[int]) -> list[int]",
        "The list of sums of the first 1, 2, 3 ... numbers.",
        "    total, sums = 0, []\n    for n in numbers:\n        total += n\n"
        "        sums.append(total)\n    return sums",
        [("sums.append(total)", "sums.append(max(sums + [total]))"), ("total += n", "total += abs(n)"),
         ("in numbers", "in numbers[:3]")],
        [[[1, 2, 3]], [[5, -2]], [[]], [[10, 20, 30, 40]], [[-1]], [[0, 0, 4]]],
    ),
    _item(
        "clamp(value: int, low: int, high: int) -> int",
        "The number nearest to value in the range from low to high, both included.",
        "    return max(low, min(value, high))",
        [("max(low, min(value, high))", "min(value, high)"), ("max(low, min(value, high))", "max(low, value)"),
         ("min(value, high)", "min(value, high - 1)")],
        [[-5, 0, 10], [15, 0, 10], [4, 0, 10], [10, 0, 10], [0, 0, 0], [-3, -4, -2]],
    ),
    _item(
        "gcd(a: int, b: int) -> int",
        "The greatest common divisor of two whole numbers of at least 0; gcd(a, 0) is a.",
        "    while b:\n        a, b = b, a % b\n    return a",
        [("a, b = b, a % b", "a, b = b, a - b if a > b else 0"), ("return a", "return a if a > 1 else 0"),
         ("while b:", "for _ in range(1 if b else 0):")],
        [[12, 18], [7, 5], [9, 0], [100, 75], [21, 14], [0, 4], [17, 17]],
    ),
    _item(
        "is_prime(n: int) -> bool",
        "Whether n is a prime number. Numbers below 2 are not.",
        "    if n < 2:\n        return False\n    return all(n % d for d in range(2, int(n ** 0.5) + 1))",
        [("n < 2", "n < 1"), ("int(n ** 0.5) + 1", "int(n ** 0.5)"),
         ("range(2, int(n ** 0.5) + 1)", "range(2, min(n, 4))")],
        [[1], [9], [25], [2], [97], [0], [49], [-7]],
    ),
    _item(
        "fizz(n: int) -> str",
        "'FizzBuzz' for multiples of 15, else 'Fizz' for multiples of 3, 'Buzz' for multiples of 5, else n as text.",
        "    return ('Fizz' if n % 3 == 0 else '') + ('Buzz' if n % 5 == 0 else '') or str(n)",
        [("or str(n)", "or n"), ("+ ('Buzz'", "or ('Buzz'"), ("n % 5 == 0", "n % 10 == 5")],
        [[7], [15], [10], [9], [5], [30], [1]],
    ),
    _item(
        "caesar(text: str, shift: int) -> str",
        "text with each small letter a-z moved shift places on in the alphabet, z followed by a; all else stays.",
        "    move = lambda c: chr((ord(c) - 97 + shift) % 26 + 97)\n"
        "    return ''.join(move(c) if 'a' <= c <= 'z' else c for c in text)",
        [("% 26 ", ""), (" if 'a' <= c <= 'z' else c", ""), ("+ shift", "- shift")],
        [["xyz", 3], ["a b!", 1], ["Hello", 2], ["abc", 26], ["", 5], ["dog", -4]],
    ),
    _item(
        "word_counts(text: str) -> dict[str, int]",
        "How often each word occurs; words are what stands between blanks, ignoring case.",
        "    counts = {}\n    for word in text.lower().split():\n"
        "        counts[word] = counts.get(word, 0) + 1\n    return counts",
        [("text.lower()", "text"), (".split()", ".split(' ')"), ("counts.get(word, 0) + 1", "1")],
        [["The cat the dog"], ["a  b"], [""], ["yes yes yes"], ["one"], [" A a B "]],
    ),
    _item(
        "flatten(lists: list[list[int]]) -> list[int]",
        "All numbers of the inner lists, in order.",
        "    return [n for inner in lists for n in inner]",
        [("for n in inner]", "for n in inner[:2]]"), ("for n in inner]", "for n in sorted(inner)]"),
         ("in lists", "in lists[:2]")],
        [[[[1, 2, 3], [4]]], [[[3, 1], [2]]], [[[1], [2], [3]]], [[]], [[[], [5]]], [[[9, 9], [], [8, 7, 6]]]],
    ),
    _item(
        "without_repeats(items: list[int]) -> list[int]",
        "The list without repetitions, each number where it first occurs.",
        "    kept = []\n    for x in items:\n        if x not in kept:\n            kept.append(x)\n    return kept",
        [("if x not in kept", "if kept[-1:] != [x]"), ("return kept", "return sorted(kept)"),
         ("in items:", "in items[::-1]:")],
        [[[3, 1, 3]], [[1, 1, 2]], [[5, 4]], [[]], [[2, 2, 2]], [[7, 8, 7, 9, 8]]],
    ),
    _item(
        "binary(n: int) -> str",
        "The whole number n, at least 0, in binary digits, without a prefix; '0' for 0.",
        "    digits = ''\n    while n:\n        digits = str(n % 2) + digits\n        n //= 2\n"
        "    return digits or '0'",
        [("str(n % 2) + digits", "digits + str(n % 2)"), (" or '0'", ""), ("while n:", "while n > 1:")],
        [[6], [0], [1], [13], [8], [255]],
    ),
    _item(
        "transpose(rows: list[list[int]]) -> list[list[int]]",
        "The matrix with rows and columns exchanged. All rows are equally long.",
        "    return [list(column) for column in zip(*rows)]",
        [("zip(*rows)", "rows"), ("zip(*rows)", "zip(*rows[::-1])"), ("list(column)", "sorted(column)")],
        [[[[1, 2], [3, 4]]], [[[5, 6, 7]]], [[[9], [1]]], [[[3, 1], [2, 0], [1, 5]]], [[]]],
    ),
    _item(
        "balanced(text: str) -> bool",
        "Whether the brackets ( ) [ ] in text match and nest rightly; other characters do not matter.",
        "    stack = []\n    for c in text:\n        if c in '([':\n            stack.append(c)\n"
        "        elif c in ')]':\n            if not stack or stack.pop() + c not in ('()', '[]'):\n"
        "                return False\n    return not stack",
        [("return not stack", "return True"),
         ("not stack or stack.pop() + c not in ('()', '[]')", "not stack or not stack.pop()"),
         ("return False", "return bool(stack)")],
        [["(("], ["(]"], ["a(b)[c]"], [")("], ["([)]"], [""], ["(()[])"]],
    ),
    _item(
        "merge(a: list[int], b: list[int]) -> list[int]",
        "The numbers of two sorted lists in one sorted list, repetitions kept.",
        "    return sorted(a + b)",
        [("sorted(a + b)", "a + b"), ("sorted(a + b)", "sorted(set(a + b))"), ("a + b", "a + b[:len(a)]")],
        [[[1, 4], [2, 3]], [[1, 1], [1]], [[5], [1, 9, 12]], [[], []], [[0], []], [[-2, 7], [-3, 7]]],
    ),
    _item(
        "digit_sum(n: int) -> int",
        "The sum of the decimal digits of n, whose sign does not matter.",
        "    return sum(int(d) for d in str(abs(n)))",
        [("abs(n)", "abs(n) % 1000"), ("str(abs(n))", "(str(n) if n >= 0 else '0')"), ("int(d) for", "int(d) % 9 for")],
        [[12345], [-42], [99], [0], [1000], [-9081]],
    ),
    _item(
        "rotate(items: list[int], k: int) -> list[int]",
        "The list with its last k numbers moved to the front, in order; k may be larger than the list.",
        "    k = k % len(items) if items else 0\n    return items[len(items) - k:] + items[:len(items) - k]",
        [("k % len(items) if items else 0", "min(k, len(items))"),
         ("return items[len(items) - k:] + items[:len(items) - k]", "return items[k:] + items[:k]"),
         ("return items[len(items) - k:]", "return items[len(items) - k:][::-1]")],
        [[[1, 2, 3], 4], [[1, 2, 3, 4, 5], 2], [[], 3], [[7, 8], 0], [[1, 2, 3], 3], [[9], 5]],
    ),
    _item(
        "longest_word(text: str) -> str",
        "The longest of the words between blanks; the first of several equally long; '' when there is none.",
        "    best = ''\n    for word in text.split():\n        if len(word) > len(best):\n"
        "            best = word\n    return best",
        [("len(word) > len(best)", "len(word) >= len(best)"), ("len(word) > len(best)", "word > best"),
         ("text.split()", "text.split()[1:]")],
        [["big red fox"], ["a bcd ef"], ["elephant in"], [""], ["one three seven"], ["x"]],
    ),
    _item(
        "compress(text: str) -> str",
        "Each run of equal characters as the character and the length of the run: 'aab' gives 'a2b1'.",
        "    parts = []\n    for c in text:\n        if parts and parts[-1][0] == c:\n            parts[-1][1] += 1\n"
        "        else:\n            parts.append([c, 1])\n    return ''.join(c + str(n) for c, n in parts)",
        [("str(n)", "(str(n) if n > 1 else '')"), ("parts[-1][0] == c", "parts[0][0] == c"),
         ("str(n)", "str(min(n, 9))")],
        [["aab"], ["abba"], ["zzzzzzzzzzzz"], [""], ["x"], ["aaAA"]],
    ),
    _item(
        "leap_year(year: int) -> bool",
        "Whether year has a 29 February: multiples of 4, but of the multiples of 100 only those of 400.",
        "    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        [(" and (year % 100 != 0 or year % 400 == 0)", ""), (" or year % 400 == 0", ""), ("year % 4 == 0 and ", "")],
        [[1900], [2000], [2023], [2024], [2100], [1600]],
    ),
    _item(
        "pairs_with_sum(numbers: list[int], total: int) -> int",
        "How many pairs of places i < j hold two numbers that add up to total.",
        "    n = len(numbers)\n"
        "    return sum(1 for i in range(n) for j in range(i + 1, n) if numbers[i] + numbers[j] == total)",
        [("range(i + 1, n)", "range(i, n)"), ("range(i + 1, n)", "range(i + 1, i + 2 if i + 2 <= n else n)"),
         ("== total", ">= total")],
        [[[1, 2, 3, 2], 4], [[2, 0], 4], [[5, 5, 5], 10], [[], 0], [[1, 9, 4], 3], [[-1, 1, 0, 0], 0]],
    ),
    _item(
        "roman(n: int) -> str",
        "The whole number n from 1 to 39 in Roman numerals.",
        "    text = ''\n    for value, sign in ((10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')):\n"
        "        while n >= value:\n            text += sign\n            n -= value\n    return text",
        [(", (9, 'IX')", ""), (", (4, 'IV')", ""), ("while n >= value", "if n >= value")],
        [[9], [4], [3], [14], [39], [1], [28]],
    ),
    _item(
        "diff(a: list[int], b: list[int]) -> list[int]",
        "The numbers of a that are not in b, in the order and number in which a has them.",
        "    return [x for x in a if x not in b]",
        [("[x for x in a if x not in b]", "sorted(set(a) - set(b))"), ("not in b", "not in b[:1]"),
         ("not in b", "in b")],
        [[[3, 1, 3], [1]], [[1, 2], [2, 1]], [[], [4]], [[5, 4], []], [[7, 7, 8], [8]]],
    ),
]  # fmt: skip
ITEMS = {item.name: item for item in _ITEMS}
"""All items by name."""
