"""Reward functions put together with weights."""

import asyncio
from fractions import Fraction

import numpy as np
import pytest

from legos_envs import Rubric, Unscored


def correct(answer, truth):
    return float(answer == truth)


async def brief(answer):
    await asyncio.sleep(0)
    return 1 - len(answer) / 10


def everything(**facts):
    return len(facts)


def test_weighted_sum_with_a_metric_of_weight_zero():
    scores = Rubric([correct, brief, everything], [1, 0.5, 0])(answer="ab", truth="ab", unused=None)
    assert scores.parts == {"correct": 1.0, "brief": 0.8, "everything": 3.0}
    assert scores.total == pytest.approx(1.4)


def test_weights_are_one_by_default_and_functions_work_alone():
    assert Rubric([correct])(answer="x", truth="y").total == correct("x", "y") == 0


def test_the_same_inside_a_running_loop_and_awaited():
    rubric = Rubric([correct, brief])

    async def both():
        return rubric(answer="ab", truth="c"), await rubric.score(answer="ab", truth="c")

    first, second = asyncio.run(both())
    assert first == second == (0.8, {"correct": 0.0, "brief": 0.8})


@pytest.mark.parametrize("value", [None, float("nan"), "1", float("inf")])
def test_a_function_that_gives_no_number_is_named(value):
    def odd():
        return value

    with pytest.raises(ValueError, match="'odd' must return a finite number"):
        Rubric([odd])()


@pytest.mark.parametrize("value", [np.float32(0.5), np.bool_(True), np.int64(3), Fraction(1, 2), True])
def test_numbers_of_any_kind_are_taken(value):
    assert Rubric([lambda: value])().total == float(value)


def test_unscored_goes_through():
    def offline():
        raise Unscored("no answer from the service")

    with pytest.raises(Unscored, match="no answer"):
        Rubric([offline])()


@pytest.mark.parametrize("weights", [[1], [1, float("nan")], [1, "2"]])
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="weights must be 2 finite numbers"):
        Rubric([correct, brief], weights)


def test_names_must_differ():
    with pytest.raises(ValueError, match="different names"):
        Rubric([correct, correct])
