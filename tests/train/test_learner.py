"""One optimiser step over a backend that answers by a script: which numbers it reports and when it refuses to go on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from legos_train import TrainingError
from legos_train.loss.batch import Batch, pack
from legos_train.model.backend import Capabilities, TrainerBackend
from legos_train.model.learner import Learner
from tests.train.helpers import small
from tests.train.test_batch import episode, turn

HEALTHY = {"finite": True, "grad_norm": 1.0, "live_share": 1.0}


class Scripted:
    """A backend that returns the given numbers, one entry for each pass."""

    capabilities, vocabulary, average = Capabilities(), 96, None

    def __init__(self, *passes: dict[str, Any]) -> None:
        self.passes, self.updates = list(passes), 0

    def snapshot(self, step: int) -> int:
        return self.updates

    def forward_backward(self, part: Batch, settings: object, version: int) -> dict[str, Any]:
        return {**HEALTHY, **self.passes.pop(0)}

    def optim_step(self, rate: float) -> None:
        self.updates += 1

    def distance(self, before: int) -> float:
        return float(self.updates - before)

    def fold_average(self, step: int) -> None: ...


def learner(*passes: dict[str, Any], **optim: int) -> Learner:
    return Learner(cast(TrainerBackend, Scripted(*passes)), small(optim=optim, loss={"kl": 0.0, "kl_end": None}))


def batch(*advantages: float, contexts: bool = False) -> Batch:
    """One-token turns of token 7, after the same prompt or each after its own."""
    episodes = [episode([turn([1, 2 + k * contexts], [7], version=0)], seed=k) for k in range(len(advantages))]
    return pack(episodes, [{"a0": [value]} for value in advantages])


def test_the_numbers_of_a_step_are_those_of_all_its_passes() -> None:
    one = {"loss": 1.0, "ratio_max": 1.5, "ratio_min": 0.9, "mismatch_max": 1e-6, "clip": 0.0, "staleness": {"0": 2}}
    two = {"loss": 2.0, "ratio_max": 1.1, "ratio_min": 0.5, "mismatch_max": 0.3, "clip": 0.5, "staleness": {"1": 2}}
    numbers = learner(one, two, epochs=2).update(batch(1.0, -1.0, contexts=True))
    assert numbers["loss"] == 1.5 and numbers["clip"] == 0.25
    assert (numbers["ratio_max"], numbers["ratio_min"]) == (1.5, 0.5)
    assert numbers["mismatch_max"] == 1e-6, "later passes have other weights than those that sampled"
    assert numbers["staleness"] == {"0": 2}, "every token of the step once"
    assert (numbers["updates"], numbers["skipped"]) == (2, 0)
    parts = learner(one, two, minibatches=2).update(batch(1.0, -1.0, 0.5, contexts=True))
    assert parts["staleness"] == {"0": 2, "1": 2} and parts["loss"] == 1.5
    assert parts["clip"] in (pytest.approx(1 / 6), pytest.approx(1 / 3)), "a share of the tokens, 2 in one part and 1"
    broken = {"finite": False, "loss": float("nan")}
    assert learner(broken, two, epochs=2).update(batch(1.0, -1.0, contexts=True))["loss"] == 2.0


def test_advantages_that_cancel_are_no_error() -> None:
    """All eight games took the same move and half of them won: the gradient is rightly zero."""
    still = {"grad_norm": 0.0}
    numbers = learner(still).update(batch(0.7, -0.7, 0.1, -0.1))
    assert (numbers["updates"], numbers["idle"]) == (0, 1)
    with pytest.raises(TrainingError, match="exactly zero although 2 of 2 tokens"):
        learner(still).update(batch(0.7, -0.7, contexts=True))
    with pytest.raises(TrainingError, match="exactly zero although 3 of 3 tokens"):
        learner(still).update(batch(0.7, -0.7, 0.1))
