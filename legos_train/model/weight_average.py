"""The average of weights over a run: exponential, uniform over its later part, or with growing weights."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from legos_train.config import sections


class WeightAverage:
    """An average that is accumulated step by step.

    Attributes:
        weights: the sum so far, by name.
        total: the divisor of the sum for `ema` and `polynomial`; the number of weights in it for `uniform`.
    """

    def __init__(self, settings: sections.AverageSettings, steps: int, like: Mapping[str, mx.array]):
        self.settings, self.steps = settings, steps
        self.weights = {name: mx.zeros_like(weight) for name, weight in like.items()}
        self.total = 0.0
        mx.eval(self.weights)

    def fold(self, step: int, current: Mapping[str, mx.array]) -> None:
        """Adds the weights after a step."""
        if (told := self.settings.kept(step, self.steps, self.total)) is None:
            return
        keep, self.total = told
        self.weights = {name: keep * a + (1 - keep) * current[name] for name, a in self.weights.items()}
        mx.eval(self.weights)

    def value(self) -> dict[str, mx.array] | None:
        """The average; None if there is none yet."""
        if self.settings.kind == "none" or not self.total:
            return None
        if self.settings.kind == "uniform":
            return dict(self.weights)
        return {name: a / self.total for name, a in self.weights.items()}
