"""One optimiser step: schedules, guards, minibatches.

Training that silently does nothing hurts users most, so it is an error here: a gradient of exactly zero under non-zero
advantages, and an adapter that a step leaves unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from legos_train.config import TrainConfig
from legos_train.errors import TrainingError
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch
from legos_train.model.backend import FULL_ROW_VOCABULARY, GroupBytes, TrainerBackend
from legos_train.model.step_numbers import combined

CERTAIN = 1e-4
"""A log-probability closer to 0 than this may be exactly 0, with a gradient of exactly 0, in another implementation."""
VANISHED = 1e-6
"""A gradient norm below which weights may legitimately not change: the policy has become deterministic."""


OF_TOTALS = ("loss", "kl", "entropy", "entropy_bonus", "illegal_mass")
"""Numbers of a pass that are divided by the totals of its minibatch, which are equal shares of the batch's: their plain
mean is that of the batch. All others are means over the tokens that the minibatch has."""


class Learner:
    """Optimiser steps on a backend.

    Attributes:
        step: optimiser steps done, which is the policy version.
        skipped: number of non-finite updates in a row.
        kl_factor: multiplies the scheduled KL weight; the collapse monitor raises it.
        replaced: the step after which other weights were restored. Episodes generated ahead until then share its
            number.
    """

    def __init__(self, backend: TrainerBackend, config: TrainConfig):
        self.config, self.backend = config, backend
        self.step = 0
        self.skipped = 0
        self.kl_factor = 1.0
        self.replaced: int | None = None

    # --- schedules ---------------------------------------------------------------------------------------------------

    def learning_rate(self, step: int) -> float:
        """The learning rate at step 1, 2, ...: linear warm-up, then a linear decay to `lr_end` of the peak."""
        o, steps = self.config.optim, self.config.steps
        done = (step - 1) / max(steps - 1, 1)
        return o.lr * (1 - (1 - o.lr_end) * done) * min(1.0, step / (o.warmup + 1))

    def kl_weight(self, step: int) -> float:
        """The scheduled weight, times `kl_factor`."""
        return self.config.loss.kl_weight(step, self.config.steps) * self.kl_factor

    def settings(self, step: int) -> LossSettings:
        """The loss settings of a step."""
        exact = self.backend.capabilities.exact_kl and self.backend.vocabulary <= FULL_ROW_VOCABULARY
        return self.config.loss.fixed(self.kl_weight(step), exact=exact)

    # --- one step ----------------------------------------------------------------------------------------------------

    def update(self, batch: Batch) -> dict[str, Any]:
        """Trains on one batch (`epochs` x `minibatches` optimiser updates) and returns numbers to log.

        Raises:
            TrainingError: the batch was not sampled from these weights, the gradient was exactly zero under non-zero
                advantages, the adapter did not change, or several steps in a row were not finite.
        """
        config, step = self.config, self.step + 1
        settings = self.settings(step)
        before = self.backend.snapshot(self.step)
        passes: list[tuple[int, dict[str, Any]]] = []
        first = updates = idle = skipped = 0
        steepest = 0.0
        if settings.needs_start:
            batch = self.backend.prepare(batch, settings)
        for epoch in range(config.optim.epochs):
            for part in batch.minibatches(config.optim.minibatches, seed=_mix(config.seed, step, epoch)):
                seen = self.backend.forward_backward(part, settings, self.step)
                if not passes:
                    self._check_mismatch(step, seen.get("mismatch_max", 0.0))
                passes.append((len(part), seen))
                first += epoch == 0
                if not seen["finite"]:
                    skipped += 1
                    self._skip(step)
                    continue
                if seen["grad_norm"] == 0.0:
                    # A token of probability 1 has a gradient of 0 in float32: learning has ended, no error.
                    open_ = np.count_nonzero(_uncancelled(part) & (part.old_logprobs < -CERTAIN))
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
        change = self.backend.distance(before)
        if updates and change == 0.0 and steepest > VANISHED and self.learning_rate(step) > 0:
            raise TrainingError(
                f"step {step}: the adapter did not change after {updates} update(s) with learning rate "
                f"{self.learning_rate(step):.2e} and a gradient norm of {steepest:.2e}. Nothing would be learned"
            )
        self.finish(step)
        numbers = _pooled(passes, first)
        numbers.update(
            lr=self.learning_rate(step), kl_weight=settings.kl, adapter_change=change, updates=updates, idle=idle
        )
        numbers["skipped"] = skipped
        return numbers

    def _check_mismatch(self, step: int, mismatch: float) -> None:
        """Checks, before learning from them, that tokens labelled as sampled from these weights really were."""
        ahead = self.config.asynchronous
        if ahead.enabled and (ahead.in_flight == "keep" or self.replaced == self.step):
            return  # keys and values of older weights are still in use, or two sets of weights share this number
        most = self.config.sampling.max_mismatch or self.backend.capabilities.rounding
        if mismatch > most:
            raise TrainingError(
                f"step {step}: sampler and trainer disagree by {mismatch:.3g} nats about a token of the current "
                f"weights (at most {most:g} are accepted). The episodes were played by other weights or by another "
                "model: check who else publishes to the generating servers (server.urls), and their version of Legos. "
                "If the model rounds that much (half precision, quantised), raise sampling.max_mismatch. Nothing "
                "was learned from this step; --resume continues from the last checkpoint"
            )

    def finish(self, step: int) -> None:
        """Counts a step, whether it trained or not; updates the average and the magnet."""
        self.step = step
        self.backend.fold_average(step)
        loss = self.config.loss
        if loss.magnet_every and step % loss.magnet_every == 0:
            reference = self.backend.average if loss.magnet == "average" else self.backend.snapshot
            self.backend.anchor(reference(step))

    def _skip(self, step: int) -> None:
        self.skipped += 1
        if self.skipped > self.config.optim.max_skipped:
            raise TrainingError(
                f"step {step}: {self.skipped} updates in a row had a loss or gradient that is not finite; "
                "the last checkpoint is intact. Try a smaller learning rate"
            )

    # --- state -------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, GroupBytes], dict[str, Any]]:
        """Groups of tensors by the name of their file in a checkpoint, and numbers as JSON."""
        kept = self.backend.save_state()
        own = {"step": self.step, "skipped": self.skipped, "kl_factor": self.kl_factor}
        return kept.groups, {**own, **kept.numbers}

    def restore(self, groups: Mapping[str, bytes], numbers: dict[str, Any]) -> None:
        """Restores `state()`, bit for bit."""
        try:
            self.backend.load_state(groups, numbers)
        except ValueError as error:
            raise TrainingError(str(error)) from error
        self.step, self.skipped, self.kl_factor = numbers["step"], numbers["skipped"], numbers["kl_factor"]


def _uncancelled(part: Batch) -> np.ndarray:
    """Which tokens (M,) have an advantage that those of the same token in the same context do not cancel.

    Where they do cancel, as when the games of a group differed only by chance, a gradient of zero is right.
    """
    _, same = np.unique(np.stack([part.position, part.target]), axis=1, return_inverse=True)
    given = part.advantages * part.weight
    total, most = np.bincount(same.reshape(-1), given), np.bincount(same.reshape(-1), np.abs(given))
    left: np.ndarray = (np.abs(total) > 1e-6 * most)[same.reshape(-1)] & (part.advantages != 0.0)
    return left


def _pooled(passes: list[tuple[int, dict[str, Any]]], first: int) -> dict[str, Any]:
    """The numbers of a step's passes as one. Passes that were not finite count only if there are no others.

    Mismatches are those of the first pass, which alone has the weights that sampled, and tokens are counted by
    staleness in the `first` passes, those of one epoch.
    """
    counted = [(tokens, seen) for tokens, seen in passes if seen["finite"]] or passes[:1]
    out = combined([seen for _, seen in counted], [tokens for tokens, _ in counted])
    out |= {name: float(np.mean([seen[name] for _, seen in counted])) for name in OF_TOTALS if name in out}
    epoch = combined([seen for _, seen in passes[:first]], [tokens for tokens, _ in passes[:first]])
    for source, name in ((passes[0][1] if passes else {}, "mismatch"), (epoch, "staleness")):
        out = {key: value for key, value in out.items() if not key.startswith(name)}
        out |= {key: value for key, value in source.items() if key.startswith(name)}
    return out


def _mix(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
