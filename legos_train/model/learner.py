"""One optimiser step: schedules, guards, minibatches, weight averages.

What hurts users most is training that silently does nothing, so that is an error here: a gradient of exactly zero under
non-zero advantages, and an adapter that a step leaves unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from legos_train.batch import Batch
from legos_train.config import TrainConfig
from legos_train.errors import TrainingError
from legos_train.loss import LossSettings
from legos_train.model.backend import TrainerBackend
from legos_train.model.policy import FULL_ROW_VOCABULARY, Weights

CERTAIN = 1e-4
"""A log-probability nearer to 0 than this may be exactly 0, with a gradient of exactly 0, in another implementation."""
VANISHED = 1e-6
"""A gradient norm below which weights may well stay as they are: the policy has become deterministic."""


class Learner:
    """The policy being trained and its averages; `step` counts optimiser steps done (the policy version).

    `kl_factor` multiplies the scheduled KL weight; the collapse monitor raises it. `vocabulary`: how many tokens the
    model knows.
    """

    def __init__(self, backend: TrainerBackend, config: TrainConfig, vocabulary: int):
        self.config, self.backend, self.vocabulary = config, backend, vocabulary
        self.step = 0
        self.skipped = 0
        self.kl_factor = 1.0
        self._average: Weights = {name: mx.zeros_like(w) for name, w in backend.trainable().items()}
        self._average_weight = 0.0
        self._magnet: Weights | None = None
        mx.eval(self._average)

    # --- schedules ---------------------------------------------------------------------------------------------------

    def learning_rate(self, step: int) -> float:
        """At step 1, 2, ...: linear warm-up, then a linear decay to `lr_end` of the peak."""
        o, steps = self.config.optim, self.config.steps
        done = (step - 1) / max(steps - 1, 1)
        return o.lr * (1 - (1 - o.lr_end) * done) * min(1.0, step / (o.warmup + 1))

    def kl_weight(self, step: int) -> float:
        """The scheduled weight, times `kl_factor`."""
        return self.config.loss.kl_weight(step, self.config.steps) * self.kl_factor

    def settings(self, step: int) -> LossSettings:
        """The loss of a step."""
        return self.config.loss.fixed(self.kl_weight(step), exact=self.vocabulary <= FULL_ROW_VOCABULARY)

    # --- one step ----------------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Any]:
        """Trains on one batch (`epochs` x `minibatches` optimiser updates) and returns numbers to log.

        Raises:
            TrainingError: the gradient was exactly zero under non-zero advantages, the adapter did not change, or
                several steps in a row were not finite.
        """
        config, step = self.config, self.step + 1
        settings = self.settings(step)
        before = self.backend.trainable()
        if not before:
            raise TrainingError(f"step {step}: no LoRA weight is trainable (all are frozen): nothing would be learned")
        numbers: dict[str, Any] = {}
        updates = idle = skipped = 0
        steepest = 0.0
        if settings.needs_start:
            batch = self.backend.prepare(batch, settings)
        for epoch in range(config.optim.epochs):
            for part in batch.minibatches(config.optim.minibatches, seed=_mix(config.seed, step, epoch)):
                seen = self.backend.forward_backward(part, settings, self.step)
                numbers = numbers or seen
                if not seen["finite"]:
                    skipped += 1
                    self._skip(step)
                    continue
                if seen["grad_norm"] == 0.0:
                    # A token of probability 1 has a gradient of 0 in float32: that is the end of learning, no mistake.
                    open_ = np.count_nonzero((part.advantages != 0.0) & (part.old_logprobs < -CERTAIN))
                    if open_ and seen["live_share"] > 0:
                        raise TrainingError(
                            f"step {step}: the gradient is exactly zero although {open_} of {len(part)} tokens have an "
                            "advantage and were not certain. Nothing would be learned: check that LoRA weights are "
                            "trainable and reach the loss"
                        )
                    idle += 1
                    continue
                self.backend.optim_step(self.learning_rate(step))
                self.skipped = 0
                steepest = max(steepest, seen["grad_norm"])
                updates += 1
        change = adapter_change(before, self.backend.trainable())
        if updates and change == 0.0 and steepest > VANISHED and self.learning_rate(step) > 0:
            raise TrainingError(
                f"step {step}: the adapter did not change after {updates} update(s) with learning rate "
                f"{self.learning_rate(step):.2e} and a gradient norm of {steepest:.2e}. Nothing would be learned"
            )
        self.finish(step)
        numbers.update(
            lr=self.learning_rate(step), kl_weight=settings.kl, adapter_change=change, updates=updates, idle=idle
        )
        numbers["skipped"] = skipped
        numbers.setdefault("kl", 0.0)
        return numbers

    def finish(self, step: int) -> None:
        """Counts a step, whether it could train or not; averages and the magnet move on."""
        self.step = step
        self._fold_average()
        every = self.config.loss.magnet_every
        if every and step % every == 0:
            self._magnet = dict(self.backend.trainable())
            self.backend.anchor(self._magnet)

    def _skip(self, step: int) -> None:
        self.skipped += 1
        if self.skipped > self.config.optim.max_skipped:
            raise TrainingError(
                f"step {step}: {self.skipped} updates in a row had a loss or gradient that is not finite; "
                "the last checkpoint is intact. Try a smaller learning rate"
            )

    # --- averages ----------------------------------------------------------------------------------------------------

    def _fold_average(self) -> None:
        kind, current = self.config.average.kind, self.backend.trainable()
        if kind == "none":
            return
        if kind == "uniform":
            if self.step <= self.config.average.start * self.config.steps:
                return
            keep = self._average_weight / (self._average_weight + 1)
            self._average_weight += 1
        else:
            keep = self.config.average.decay
            self._average_weight = keep * self._average_weight + (1 - keep)
        self._average = {name: keep * a + (1 - keep) * current[name] for name, a in self._average.items()}
        mx.eval(self._average)

    def average(self) -> Weights:
        """The weight average so far; the current weights where there is none."""
        if self.config.average.kind == "none" or not self._average_weight:
            return self.backend.trainable()
        if self.config.average.kind == "uniform":
            return dict(self._average)
        return {name: a / self._average_weight for name, a in self._average.items()}

    # --- state -------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Weights]:
        """All arrays of the state, by the name of the checkpoint file they belong in."""
        out = {**self.backend.arrays(), "average": dict(self._average)}
        if self._magnet is not None:
            out["magnet"] = dict(self._magnet)
        return out

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "skipped": self.skipped,
            "average_weight": self._average_weight,
            "kl_factor": self.kl_factor,
        }

    def restore(self, arrays: Mapping[str, Weights], state: Mapping[str, Any]) -> None:
        """Comes back to `arrays()` and `state()`, bit for bit."""
        try:
            self.backend.restore(arrays)
        except ValueError as error:
            raise TrainingError(str(error)) from error
        self._average = dict(arrays["average"])
        self.step, self.skipped, self._average_weight = state["step"], state["skipped"], state["average_weight"]
        self.kl_factor = state["kl_factor"]
        if "magnet" in arrays:
            self._magnet = dict(arrays["magnet"])
            self.backend.anchor(self._magnet)


def adapter_change(before: Mapping[str, mx.array], after: Mapping[str, mx.array]) -> float:
    """The largest absolute change of any weight."""
    changes = mx.stack([mx.max(mx.abs(after[name] - value)) for name, value in before.items()])
    return float(np.asarray(mx.max(changes)))


def _mix(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
