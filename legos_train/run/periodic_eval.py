"""Evaluates the weights of a run during training, and tracks the best."""

from __future__ import annotations

import json
from collections.abc import Collection

from legos_train.model import Snapshot
from legos_train.observe import eval_numbers
from legos_train.rollout.players import actors
from legos_train.run.league_value import league_value
from legos_train.run.parts.parts import Best, Parts

AVERAGE = "average"
"""The adapter under which the weight average is evaluated."""


def evaluate(parts: Parts, tasks: Collection[str] | None = None, *, together: bool = True) -> dict[str, float]:
    """Evaluates the last weights and, as `NAME_average`, the weight average; tracks the best.

    Args:
        parts: the run.
        tasks: names of the envs to evaluate in; all by default.
        together: whether all ranks evaluate now; else only this one.
    """
    step = parts.learner.step
    last, results = parts.backend.snapshot(step), {}
    results["last"] = (last, _measured(parts, actors.POLICY, tasks, together))
    if parts.config.average.kind != "none" and step:
        average = publish_average(parts)
        results[AVERAGE] = (average, _measured(parts, AVERAGE, tasks, together))
    for kind, (weights, numbers) in results.items():
        if step and _better(parts, numbers):
            parts.best = Best(step, kind, numbers, weights)
    averaged = results[AVERAGE][1] if AVERAGE in results else {}
    averaged = {f"{name}{eval_numbers.AVERAGE}": value for name, value in averaged.items()}
    return {**results["last"][1], **averaged}


def publish_average(parts: Parts) -> Snapshot:
    """Publishes the weight average to the evaluation engine."""
    average = parts.backend.average(parts.learner.step)
    parts.backend.publish(parts.sync.local, AVERAGE, average)
    return average


def _measured(parts: Parts, adapter: str, tasks: Collection[str] | None, together: bool) -> dict[str, float]:
    """The results; with several ranks those of rank 0, so that all keep the same weights as the best."""
    numbers = parts.measurer.measure(adapter, tasks)
    if adapter == actors.POLICY:
        numbers = {**league_value(parts, tasks), **numbers}  # first: what a league is judged by
    if together and parts.world is not None:
        numbers = json.loads(parts.world.share(json.dumps(numbers).encode()))
    return numbers


def _better(parts: Parts, numbers: dict[str, float]) -> bool:
    """Whether these are better than the best so far; never if no game was scored, or by weights whose illegal answers
    would raise the alarm: exact numbers count legal answers only.
    """
    if (chosen := parts.measurer.key(numbers)) is None:
        return False
    key, sign = chosen
    env, slash, kind = key.rpartition("/")
    limit = parts.config.monitor.illegal
    if kind in eval_numbers.EXACT and limit is not None and numbers.get(f"{env}{slash}illegal", 0.0) > limit:
        return False
    return parts.best is None or sign * numbers[key] > sign * parts.best.numbers[key]
