"""The gradient microscope sees what the trainer computes, and tells bugs from chance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.microscope import PPO, Microscope, measure
from benchmarks.microscope_faults import FAULTS, LIMIT, SAME, Fault, distance, gradients, largest_t
from legos_train.credit import make_credit


@pytest.fixture(scope="module")
def scope() -> Iterator[Microscope]:
    one = Microscope()
    yield one
    one.trainer.parts.close()


@pytest.mark.slow
def test_coefficients_times_jacobian_are_the_trainers_own_gradient(scope: Microscope) -> None:
    assert distance(scope, Fault(), 0) < 1e-4
    for name, fault in FAULTS.items():
        if fault.gradient:
            assert distance(scope, fault, 0) > SAME, name


@pytest.mark.slow
def test_a_bug_is_flagged_and_a_clean_run_is_not(scope: Microscope) -> None:
    assert largest_t(scope, gradients(scope, FAULTS["only the first turn is paid"], 1)) > LIMIT
    assert largest_t(scope, gradients(scope, Fault(), 2)) < LIMIT


def test_numbers_of_made_up_batches() -> None:
    """Two directions of length 1; batches are the truth plus noise of a known size."""
    truth, rng = np.array([2.0, 0.0]), np.random.default_rng(0)
    rows = 0.5 * truth + rng.normal(size=(4000, 2))
    numbers = measure(rows, truth, np.eye(2), games=10)
    assert numbers["cosine"][0] == pytest.approx(1.0, abs=0.01)
    assert numbers["length"][0] == pytest.approx(0.5, abs=0.02)
    assert numbers["noise"][0] == pytest.approx(10 * 2.0, rel=0.1)  # variance 2 over a mean of length 1
    for low, value, high in ((n[1], n[0], n[2]) for n in numbers.values()):
        assert low <= value <= high


@pytest.mark.slow
def test_joint_grpo_in_a_zero_sum_game_is_no_baseline(scope: Microscope) -> None:
    joint = scope.batches(3, 64, make_credit("grpo", per_role=False), PPO, 5)
    assert np.allclose(joint, scope.batches(3, 64, make_credit("reinforce"), PPO, 5))
