"""Parses a completion: its public part, and the action that it states.

Every function takes time linear in the length of the text, never raises on any string, and returns None if the result
is absent or ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

FORMATS = ("bracket", "boxed")
MAX_DIGITS = 18


def clean(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def public(text: str) -> str:
    """The part that other seats may see: everything after the last `</think>`; an unclosed `<think>` hides the rest.

    A text that begins with an unclosed thought has no public part.
    """
    text = text.rpartition("</think>")[2]
    return text.partition("<think>")[0].strip()


def bracketed(text: str) -> str | None:
    """The content of the last `[...]`, stripped: `"I [check], no, [bet]"` gives `"bet"`; the innermost if nested."""
    end = text.rfind("]")
    start = text.rfind("[", 0, end) if end >= 0 else -1
    return text[start + 1 : text.find("]", start)].strip() if start >= 0 else None


def boxed(text: str, escapes: bool = False) -> str | None:
    r"""The content of the last `\boxed{...}` with balanced braces, stripped.

    With `escapes` a brace after a backslash is a literal, as in TeX, and opens nothing.
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    skip = False
    for i in range(begin, len(text)):
        if skip:
            skip = False
        elif text[i] == "\\":
            skip = escapes
        elif text[i] == "{":
            depth += 1
        elif text[i] == "}":
            if depth == 0:
                return text[begin:i].strip()
            depth -= 1
    return None


def action(text: str, action_format: str = "bracket") -> str | None:
    """The action that a public text states in the given format."""
    return bracketed(text) if action_format == "bracket" else boxed(text)


def states_one_of(text: str, written: Sequence[str]) -> bool:
    """Whether a reply, thoughts included, states one of these actions, which are written in one format."""
    if text in written:
        return True
    stated = bool(written) and action(public(text), style := "boxed" if written[0].startswith("\\boxed") else "bracket")
    return isinstance(stated, str) and write_action(stated, style) in written


def write_action(name: str, action_format: str = "bracket") -> str:
    """An action in the given format: the inverse of `action`."""
    return f"[{name}]" if action_format == "bracket" else f"\\boxed{{{name}}}"


@lru_cache(4096)
def write_actions(names: tuple[str, ...], action_format: str = "bracket") -> tuple[str, ...]:
    """Several actions in the given format."""
    return tuple([write_action(name, action_format) for name in names])


def choice(text: str, options: Sequence[str]) -> str | None:
    """The single option that occurs in the text as a word, ignoring case; None if none or several do."""
    padded = _words(text)
    result = [option for option in options if _words(option) in padded]
    return result[0] if len(result) == 1 else None


def _words(text: str) -> str:
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text.casefold()).split()
    return f" {' '.join(words)} "


def last_integer(text: str) -> int | None:
    """The last number in the text, if it is whole: `1,234`, `-5` and `18.00` are, `3.5` and `.5` are not.

    Also None if it has more than 18 digits.
    """
    end = len(text)
    while end and not _digit(text[end - 1]):
        end -= 1
    start = end
    while start and (_digit(text[start - 1]) or (text[start - 1] == "," and start < end)):
        start -= 1
    if start > 1 and text[start - 1] == "." and _digit(text[start - 2]):
        zeros = text[start:end].strip("0") == ""
        return last_integer(text[: start - 1]) if zeros and not _decimal(text, start - 1) else None
    bare = start and text[start - 1] == "." and (start == 1 or text[start - 2].isspace() or text[start - 2] in "$-+=(")
    if bare and text[start:end].strip("0"):  # .5
        return None
    groups = text[start:end].split(",")
    first = len(groups) - 1  # first group of the last number; a comma counts only before three digits
    while first and len(groups[first]) == 3 and 1 <= len(groups[first - 1]) <= 3:
        first -= 1
    digits = "".join(groups[first:])
    if not digits or len(digits) > MAX_DIGITS:
        return None
    begin = end - len(",".join(groups[first:]))
    negative = begin > 0 and text[begin - 1] in "-\N{MINUS SIGN}" and not (begin > 1 and text[begin - 2].isalnum())
    return -int(digits) if negative else int(digits)


def _digit(character: str) -> bool:
    return "0" <= character <= "9"


def _decimal(text: str, end: int) -> bool:
    """Whether the digits before `end` themselves follow a decimal point, as in `1.2.3`."""
    while end and _digit(text[end - 1]):
        end -= 1
    return end > 1 and text[end - 1] == "." and _digit(text[end - 2])


def json_object(text: str, keys: Sequence[str]) -> dict[str, Any] | None:
    """The JSON object between the first `{` and the last `}`, if it has exactly the given keys."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and set(value) == set(keys) else None
