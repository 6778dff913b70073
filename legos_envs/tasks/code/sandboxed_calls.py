"""Runs a function on calls in the sandbox, and compares its results with the expected ones."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from legos_envs.scoring import sandbox
from legos_envs.table import Unscored
from legos_envs.tasks.code.code_items import Item

FAILED = object()
"""Represents a missing result: the call raised an exception, or returned something that JSON cannot represent."""
SECONDS = 0.5
"""Time limit of a program over all its calls. Most take less than a millisecond."""
REFERENCE_SECONDS = 5.0
"""The same for a reference, whose results are cached and used in all later episodes."""
STARTING = 0.05
"""Seconds of each run that are not counted, as the time to start an interpreter; more if starting took longer."""
LEAST = 0.01
"""With less than this many seconds left, nothing is run."""
HARNESS = """
import json as json_
results_ = []
for call_ in {calls}:
    try:
        results_.append(json_.dumps({name}(*call_)))
    except Exception:
        results_.append(None)
results_
"""


class TimeLeft:
    """A time budget shared by programs that run in sequence: each gets what is left."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    @property
    def over(self) -> bool:
        return self.seconds < LEAST


def results_of(
    code: str, name: str, calls: Sequence[list[Any]], left: TimeLeft | None = None, kind: str = "monty"
) -> tuple[list[Any], str | None]:
    """The results of a program's function on each call, `FAILED` where there is none, and the error if it did not run.

    Only the arguments enter the sandbox, so no program can find the expected results there.

    Args:
        code: the program.
        name: the name of its function.
        calls: the arguments of each call, as Python literals.
        left: the time budget, from which the run is deducted; without it the program gets `SECONDS`.
        kind: the kind of sandbox.
    """
    left = left or TimeLeft(SECONDS)
    if left.over:
        return [FAILED] * len(calls), "TimeoutError: no time was left to run it"
    start = time.monotonic()
    harness = HARNESS.format(name=name, calls=list(calls))  # as source, since inputs are JSON, which has no tuples
    ran = sandbox.run(code + harness, {}, seconds=left.seconds, kind=kind)
    left.seconds -= max(0.0, time.monotonic() - start - max(ran.starting, STARTING))
    reply = ran.value if ran.ok and isinstance(ran.value, list) and len(ran.value) == len(calls) else None
    if reply is None:
        return [FAILED] * len(calls), ran.error or "ValueError: the program put something else in place of its results"
    return [_value(text) for text in reply], None


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return FAILED
    try:
        return sandbox.plain(json.loads(text))
    except (ValueError, RecursionError):
        return FAILED


def same(value: Any, expected: Any) -> bool:
    """Whether a result is the expected one. Types matter (`1` is not `True`), but a whole float equals its integer."""
    if type(value) is not type(expected):
        return {type(value), type(expected)} == {int, float} and value == expected
    if isinstance(value, list):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key]) for key in value)
    return value is not FAILED and value == expected


def reference_results(item: Item, kind: str = "monty") -> list[Any]:
    """The results of an exercise's reference on its calls.

    Raises:
        Unscored: the reference could not be run, for example on an overloaded machine, so nobody knows the right
            results.
    """
    return _reference_results(item.reference, item.name, repr(item.calls), kind)


@lru_cache(1 << 12)
def _reference_results(code: str, name: str, calls: str, kind: str) -> list[Any]:
    results, error = results_of(code, name, ast.literal_eval(calls), TimeLeft(REFERENCE_SECONDS), kind)
    if any(result is FAILED for result in results):  # raised, not returned, since return values are cached
        raise Unscored(f"the reference of {name} was not run: {error or 'it gave no value on a call'}")
    return results
