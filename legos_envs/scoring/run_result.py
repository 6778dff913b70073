"""The result of running a program, for both kinds of sandbox."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from legos_envs import parsing

MAX_VALUE = 65_536
"""Maximum number of characters and items of the value."""
MAX_DEPTH = 64
MAX_BITS = 4_096
MAX_OUTPUT = 65_536
"""Maximum number of bytes that a program may print."""


MAX_ERROR = 500
KEYS = "has a dict with keys that are not strings"


class RunResult(NamedTuple):
    """The result of a program."""

    ok: bool
    """Whether the program ran to its end and its value, if any, is plain JSON."""
    value: Any
    """The value of the last line when it is an expression (tuples as lists), else None. Monty gives functions, types,
    ranges and iterators as their repr."""
    output: str
    """What the program printed, to either stream, up to `MAX_OUTPUT` bytes."""
    error: str | None
    """Type and message, such as `"ZeroDivisionError: division by zero (line 3)"`; None when ok."""
    starting: float = 0.0
    """Seconds until its interpreter was up, if that is a separate process (kind `"os"`)."""


def finished(value: Any, output: str) -> RunResult:
    """The result of a program that ran to its end: its value must be plain JSON."""
    try:
        return RunResult(True, plain(value), output, None)
    except ValueError as error:
        return RunResult(False, None, output, f"ValueError: {refused(error)}")


def refused(why: object) -> str:
    """The error message for a value that is not accepted."""
    return f"the program's value {why}, which is not accepted"


def plain(value: Any, most: int = MAX_VALUE) -> Any:
    """A value in the form of JSON, with tuples turned into lists.

    Raises:
        ValueError: it is not a JSON value, or is larger than `most` characters and items; the message says which.
    """
    left = most

    def convert(part: Any, depth: int) -> Any:
        nonlocal left
        left -= 1 + (len(part) if isinstance(part, str) else 0)
        if left < 0:
            raise ValueError(f"has more than {most} characters and items")
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} deep")
        if part is None or isinstance(part, bool):
            return part
        if isinstance(part, str):
            return parsing.clean(part)
        if type(part) is int:
            if part.bit_length() > MAX_BITS:
                raise ValueError(f"has a number of more than {MAX_BITS} bits")
            return part
        if type(part) is float:
            if not math.isfinite(part):
                raise ValueError(f"has the number {part}")
            return part
        if isinstance(part, list | tuple):
            return [convert(item, depth + 1) for item in part]
        if isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                raise ValueError(KEYS)
            left -= sum(map(len, part))
            return {parsing.clean(key): convert(item, depth + 1) for key, item in part.items()}
        raise ValueError(f"has a {type(part).__name__}")

    return convert(value, 0)
