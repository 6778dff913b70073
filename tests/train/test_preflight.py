"""What a dry run says of a step: measured on batches that grow, continued where the last is smaller than the run's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from legos_train.batch import Batch
from legos_train.model import Learner
from legos_train.run.preflight import Measured, batch_sizes, continued, estimate
from tests.train.helpers import small


def test_batches_grow_to_the_runs_in_whole_groups() -> None:
    assert batch_sizes(512, 1) == [16, 64, 256, 512]
    assert batch_sizes(64, 1) == [16, 64] and batch_sizes(8, 8) == [8, 8]
    assert batch_sizes(300, 12) == [12, 60, 252, 300]
    assert batch_sizes(600, 200) == [200, 600] and batch_sizes(16, 1) == [16, 16]


def test_the_runs_own_batch_is_reported_as_it_was() -> None:
    steps = [Measured(64, 1.0, 1.0, 100.0), Measured(256, 1.5, 2.0, 130.0)]
    assert continued(steps, 256) is steps[-1]


def test_a_larger_batch_is_on_the_line_through_the_last_two() -> None:
    steps = [Measured(64, 1.0, 1.0, 100.0), Measured(256, 1.5, 4.0, 130.0)]
    found = continued(steps, 640)
    assert (found.play, found.learn, found.peak) == pytest.approx((2.5, 10.0, 190.0))
    alone = continued([Measured(64, 1.0, 2.0, 100.0)], 128)
    assert (alone.play, alone.learn, alone.peak) == pytest.approx((2.0, 4.0, 200.0))


def test_memory_does_not_grow_once_a_batch_is_learned_in_parts() -> None:
    steps = [Measured(64, 1.0, 1.0, 100.0), Measured(256, 2.0, 4.0, 150.0, full=True)]
    assert continued(steps, 1024).peak == 150.0


def test_what_is_measured_is_what_the_loss_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `expected` that is every action of every decision point, however few games are played."""
    seen = []
    update = Learner.update

    def watched(self: Learner, batch: Batch) -> dict[str, Any]:
        seen.append(len(np.unique(batch.sequence)))
        return update(self, batch)

    monkeypatch.setattr(Learner, "update", watched)
    estimate(small(batch_size=2, loss={"name": "expected"}))
    assert seen == [24, 24]
