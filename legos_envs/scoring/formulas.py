r"""Whether two formulas are equal, in bounded time for any input.

    same("(x+1)^2", "x^2+2x+1", Budget())   # True

Tried in this order: values of polynomials and fractions (`algebra.py`), which settle most cases immediately; earlier
results; then math-verify, in a separate process (`formula_workers.py`), unless a quick check shows that it would not
finish. Time is limited for each comparison, and in total for each episode. Formulas that timed out twice are not tried
again.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import threading
from collections import OrderedDict, deque

from legos_envs.scoring import algebra, formula_workers

LIMIT = 0.4
"""Seconds of processor time per comparison. Honest ones take 0.01 to 0.1."""
LEAST = 0.1
"""The same if many answers share an episode's time."""
FLOODED = 0.05
"""The same while many time out: a policy may learn to keep math-verify busy. Most honest ones take less."""
EPISODE = 1.5
"""Seconds of processor time for all comparisons of an episode together."""
LOADING = 0.5
"""Seconds that a comparison waits if math-verify is not loaded: `prepare` was not called, or has timed out."""
START = 120.0
"""Maximum seconds that `prepare` waits, for very busy machines."""
FLOOD = 5
"""Number of timeouts among the last 50 comparisons that counts as a flood."""
STRIKES = 2
MAX_DEPTH = 25
REMEMBERED = 8192
EXPONENT = re.compile(r"\^\s*\{?\s*[-+]?\s*[0-9]{6}")
FACTORIAL = re.compile(r"[0-9]{5}\s*!|!\s*[)}]*!")


class Budget:
    """An episode's time budget for comparing formulas.

    Args:
        shares: number of answers that share it.
    """

    def __init__(self, shares: int = 1):
        self.left = EPISODE
        self.limit = max(LEAST, min(LIMIT, EPISODE / max(shares, 1)))
        """Seconds of processor time for each comparison: a slow one leaves enough for the others."""


def same(given: str, truth: str, budget: Budget, *, known: bool = True) -> bool:
    """Whether two formulas are equal; also False if that could not be determined in time.

    Args:
        given: the given answer.
        truth: the answer to compare it with.
        budget: time budget of the comparison.
        known: whether the truth comes from data; it is then never blamed for a timeout.

    Raises:
        RuntimeError: math-verify is installed but cannot be started.
    """
    here = by_value(given, truth)
    if here is not None:
        return here
    if not installed() or budget.left <= 0 or endless(given) or endless(truth):
        return False
    found = _memory.verdict(given, truth)
    if found is not None:
        return found
    limit = min(FLOODED if _memory.flooded else budget.limit, budget.left)
    try:
        verdict, used = formula_workers.WORKERS.ask(given, truth, limit, LOADING)
    except TimeoutError:  # there is no verdict on these formulas
        budget.left -= LOADING
        return False
    budget.left -= used
    _memory.keep(given, truth, verdict, known, limit >= budget.limit)
    return bool(verdict)


def by_value(given: str, truth: str) -> bool | None:
    """Whether two formulas are equal, if that can be determined without math-verify; else None."""
    one, other = algebra.value(given), algebra.value(truth)
    if one is None or other is None:
        return None
    return True if one.number == other.number else False if one.exact and other.exact else None


def endless(text: str) -> bool:
    """Whether a quick check shows that a formula would keep math-verify busy: towers, large exponents, deep nesting."""
    depth = powers = deepest = 0
    stack: list[bool] = []  # for each open bracket, whether it is an exponent
    before = ""
    for char in text:
        if char in "({[":
            stack.append(before == "^")
            powers += before == "^"
        elif char in ")}]" and stack:
            powers -= stack.pop()
        depth = max(depth, len(stack))
        deepest = max(deepest, powers + (before == "^" and char not in "({["))
        before = before if char.isspace() else char
    return depth > MAX_DEPTH or deepest > 2 or bool(EXPONENT.search(text) or FACTORIAL.search(text))


@functools.cache
def installed() -> bool:
    return importlib.util.find_spec("math_verify") is not None


def prepare(seconds: float = START) -> None:
    """Starts math-verify if it is installed, and waits until it is loaded, for at most `seconds`."""
    if installed():
        formula_workers.WORKERS.wait(seconds)


class _Memory:
    """A bounded cache: verdicts, and formulas that timed out."""

    def __init__(self) -> None:
        self.verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()
        self.strikes: OrderedDict[str, int] = OrderedDict()
        self.late: deque[bool] = deque(maxlen=50)
        self.lock = threading.Lock()

    @property
    def flooded(self) -> bool:
        return sum(self.late) >= FLOOD

    def verdict(self, given: str, truth: str) -> bool | None:
        with self.lock:
            if max(self.strikes.get(given, 0), self.strikes.get(truth, 0)) >= STRIKES:
                return False
            return self.verdicts.get((given, truth))

    def keep(self, given: str, truth: str, verdict: bool | None, known: bool, whole: bool) -> None:
        """Stores a verdict. A timeout is blamed on the given formula if the truth is `known`; otherwise on the formula
        that has timed out more often, or on both if equally often; on neither unless the comparison had its `whole`
        time.
        """
        with self.lock:
            self.late.append(verdict is None)
            if verdict is None and not whole:
                return
            if verdict is not None:
                _put(self.verdicts, (given, truth), verdict)
            ours, theirs = self.strikes.get(given, 0), self.strikes.get(truth, 0)
            if verdict is None:
                if known or ours >= theirs:
                    _put(self.strikes, given, ours + 1)
                if not known and theirs >= ours:
                    _put(self.strikes, truth, theirs + 1)
            else:  # so neither is inherently slow
                self.strikes.pop(given, None)
                self.strikes.pop(truth, None)


def _put(memory: OrderedDict, key: object, value: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


_memory = _Memory()

if hasattr(os, "register_at_fork"):  # another thread may have held the lock when the child was made
    os.register_at_fork(after_in_child=lambda: setattr(_memory, "lock", threading.Lock()))
