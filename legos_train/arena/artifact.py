"""One entry of an artifact store: its fields, how learnable it is, and how entries are chosen in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from legos_envs import arguments

EASY, HARD = 2 / 3, 1 / 3
"""Pass rates above the first are easy, below the second hard."""
Level = Literal["easy", "medium", "hard", "unseen"]
LEARNABILITY = "(successes + 1.0) * (attempts - successes + 1.0) / ((attempts + 2.0) * (attempts + 2.0))"
"""`learnability` in SQL; the same operations in the same order, so that results are equal bit for bit."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One entry. `step` is when it was added, `last` when its pass rate was last recorded (None: never)."""

    id: int
    pool: str
    key: str
    content: dict[str, Any]
    meta: dict[str, Any]
    weight: float
    step: int
    successes: float
    attempts: float
    last: int | None

    @property
    def pass_rate(self) -> float | None:
        """Successes per attempt; None before the first."""
        return self.successes / self.attempts if self.attempts else None

    @property
    def expected_rate(self) -> float:
        return float(expected_rate(self.successes, self.attempts))

    @property
    def learnability(self) -> float:
        return float(learnability(self.successes, self.attempts))

    @property
    def level(self) -> Level:
        """`easy`, `medium` or `hard` by the pass rate, or `unseen`."""
        rate = self.pass_rate
        return "unseen" if rate is None else "easy" if rate > EASY else "hard" if rate < HARD else "medium"


def expected_rate(successes: Any, attempts: Any) -> Any:
    """(successes + 1) / (attempts + 2), of numbers or arrays: Laplace's rule of succession. One failure is not 0."""
    return (successes + 1.0) / (attempts + 2.0)


def learnability(successes: Any, attempts: Any) -> Any:
    """p(1 - p) with p = `expected_rate`, of numbers or arrays: at most 1/4, which is also the value before any attempt.

    The variance of a success, as in Foster and Foerster 2025, "Learning to Reason at the Frontier of Learnability"
    (arXiv 2502.12272). An artifact that was never tried counts as most learnable.
    """
    p = expected_rate(successes, attempts)
    return p * (1.0 - p)


def eligible(
    pool: str | None,
    gate: tuple[float, float] | None,
    difficulty: tuple[float, float] | None,
    max_age: int | None,
    step: int | None,
    weighted: bool,
    learnable: bool,
) -> tuple[str, list[Any]]:
    """The query for id and odds of what `ArtifactStore.sample` may draw, and its values. Raises ValueError."""
    where: list[str] = ["weight > 0"] if weighted else []
    values: list[Any] = []
    if pool is not None:
        where.append("pool = ?")
        values.append(pool)
    if gate is not None:
        where.append("(attempts = 0 OR successes / attempts BETWEEN ? AND ?)")
        values += _interval("gate", gate)
    if difficulty is not None:
        where.append("(attempts > 0 AND successes / attempts BETWEEN ? AND ?)")
        values += _interval("difficulty", difficulty)
    if max_age is not None:
        if step is None:
            raise ValueError(f"max_age ({max_age!r}) needs the current step; give step=")
        where.append("step >= ?")
        values.append(arguments.whole("step", step, 0) - arguments.whole("max_age", max_age, 0))
    odds = " * ".join((["weight"] if weighted else []) + ([LEARNABILITY] if learnable else [])) or "1.0"
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT id, {odds} FROM artifacts {condition} ORDER BY id", values  # noqa: S608


def to_json(name: str, value: Any) -> str:
    """A dict as JSON from which an equal dict can be read. Raises ValueError if that is not possible."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict of JSON values; got {type(value).__name__}: {value!r:.80}")
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold JSON values only ({error}); got {value!r:.200}") from None
    if json.loads(text) != value:
        raise ValueError(
            f"{name} does not survive a JSON round trip (tuples become lists, keys become strings): use lists and "
            f"strings; got {value!r:.200}"
        )
    return text


def canonical(content: Mapping[str, Any]) -> str:
    """JSON that is equal for equal contents, whatever the order of the keys."""
    return json.dumps(dict(content), sort_keys=True, separators=(",", ":"))


def _interval(name: str, value: Any) -> tuple[float, float]:
    try:
        low, high = cast("tuple[float, float]", value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (low, high) of pass rates; got {value!r}") from None
    return arguments.real(f"{name} low", low, 0.0, arguments.real(f"{name} high", high, 0.0, 1.0)), float(high)
