"""Rubrics: plain reward functions, each usable alone, combined with weights. A model that judges is a seat instead.

For example:

    def correct(answer, truth): return answer == truth
    def brief(answer): return max(0.0, 1 - len(answer) / 1000)

    rubric = Rubric([correct, brief], weights=[1.0, 0.1])
    rubric(answer="42", truth="42").total
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

RewardFunction = Callable[..., "float | Awaitable[float]"]


class Scores(NamedTuple):
    """The weighted sum, and the value of every function by name."""

    total: float
    parts: dict[str, float]


class Rubric:
    """Reward functions with weights; a function of weight 0 is a metric, which is reported but not rewarded.

    A function takes, by name, the facts it needs (or all of them as `**facts`) and returns a finite number. It may be a
    coroutine function. To say that something cannot be scored it raises `legos_envs.Unscored`, which drops the episode;
    any other exception is a bug and is passed on.

    Args:
        functions: the reward functions; each one's part of the score is named by its `__name__`.
        weights: one for each function; 1 by default.

    Raises:
        ValueError: there is no function, two have the same name, or the weights are not one finite number for each
            function.
    """

    def __init__(self, functions: Sequence[RewardFunction], weights: Sequence[float] | None = None):
        self.functions = {getattr(f, "__name__", type(f).__name__): f for f in functions}
        if not functions or len(self.functions) != len(functions):
            raise ValueError(f"a rubric needs functions with different names; got {[*map(_name, functions)]}")
        given = [1.0] * len(functions) if weights is None else list(weights)
        if len(given) != len(functions) or not all(isinstance(w, int | float) and math.isfinite(w) for w in given):
            raise ValueError(f"weights must be {len(functions)} finite numbers, one per function; got {weights!r}")
        self.weights = dict(zip(self.functions, map(float, given)))
        self._takes = {name: _parameters(f) for name, f in self.functions.items()}

    def __call__(self, **facts: Any) -> Scores:
        """Scores facts. Coroutine functions are run to completion, even if an event loop is already running."""
        parts: dict[str, Any] = {name: self._call(name, facts) for name in self.functions}
        waiting = {name: value for name, value in parts.items() if inspect.isawaitable(value)}
        if waiting:
            with ThreadPoolExecutor(1) as pool:
                parts |= pool.submit(asyncio.run, _gather(waiting)).result()
        return self._sum(parts)

    async def score(self, **facts: Any) -> Scores:
        """Scores facts; coroutine functions run concurrently."""
        parts: dict[str, Any] = {name: self._call(name, facts) for name in self.functions}
        parts |= await _gather({name: value for name, value in parts.items() if inspect.isawaitable(value)})
        return self._sum(parts)

    def _call(self, name: str, facts: dict[str, Any]) -> Any:
        takes = self._takes[name]
        wanted = facts if takes is None else {key: facts[key] for key in takes if key in facts}
        return self.functions[name](**wanted)

    def _sum(self, parts: dict[str, Any]) -> Scores:
        values: dict[str, float] = {}
        for name, value in parts.items():
            try:
                values[name] = math.nan if isinstance(value, str | bytes) else float(value)
            except (TypeError, ValueError, OverflowError):
                values[name] = math.nan
            if not math.isfinite(values[name]):
                raise ValueError(f"reward function {name!r} must return a finite number; it returned {value!r}")
        return Scores(sum(self.weights[name] * value for name, value in values.items()), values)


async def _gather(waiting: dict[str, Awaitable[float]]) -> dict[str, float]:
    return dict(zip(waiting, await asyncio.gather(*waiting.values())))


def _parameters(function: Callable[..., Any]) -> list[str] | None:
    """The names of the arguments that a function takes; None if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters]


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
