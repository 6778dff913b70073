"""Tests of a function as lines of text, which are parsed but never run."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any, NamedTuple

from legos_envs import parsing
from legos_envs.scoring import sandbox

MAX_LINE = 500


class UnitTest(NamedTuple):
    """A test: a call and its expected result."""

    call: list[Any]
    """The arguments as written: a tuple stays a tuple."""
    result: Any
    """The expected result in the form that the sandbox returns; see `in_json`."""


def read_tests(text: str, name: str, most: int) -> list[UnitTest | None]:
    """The tests in a text: one for each of the first `most` lines that begin with `assert`, None for an invalid one.

    None of the text is run: arguments and results are literals.
    """
    lines = [line for line in map(str.strip, text.splitlines()) if line.startswith(("assert ", "assert("))]
    return [read_test(line, name) for line in lines[:most]]


def read_test(line: str, name: str) -> UnitTest | None:
    """The case that a line states: `assert f(...) == ...`, `assert f(...)` or `assert not f(...)`."""
    if len(line) > MAX_LINE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that about a needless backslash
            (statement,) = ast.parse(line).body
        assert isinstance(statement, ast.Assert)
        match statement.test:
            case ast.Compare(call, [ast.Eq() | ast.Is()], [result]):
                value = ast.literal_eval(result)
            case ast.UnaryOp(ast.Not(), call):
                value = False
            case call:
                value = True
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
        assert not call.keywords
        given = [_cleaned(ast.literal_eval(part)) for part in call.args]
        in_json(given)
        return UnitTest(given, in_json(value))
    except (AssertionError, ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def in_json(value: Any) -> Any:
    """A value as it returns from the sandbox: tuples as lists, keys as texts.

    Raises:
        TypeError, ValueError: JSON cannot represent it, or it is too large.
    """
    return sandbox.plain(json.loads(json.dumps(value, allow_nan=False)))


def _cleaned(value: Any) -> Any:
    """A literal whose strings can all be encoded in UTF-8."""
    if isinstance(value, str):
        return parsing.clean(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_cleaned, value))
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value
