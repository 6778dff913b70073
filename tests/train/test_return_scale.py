"""Advantages of large payoffs are divided by their spread."""

from __future__ import annotations

import numpy as np
import pytest

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.credit import CreditSettings
from legos_train.credit.return_scale import DECAY, ReturnScale


def episodes(*returns: float, env: str = "Poker-v0") -> list[Episode]:
    return [
        Episode(env, n, {}, {f"{role}_0": Trajectory(f"{role}_0", role, turns=[Turn((), "x", r * sign)])})
        for n, r in enumerate(returns)
        for role, sign in (("a", 1.0),)
    ]


def test_large_returns_are_divided_by_their_standard_deviation() -> None:
    plain, scaled = (CreditSettings(name="reinforce", return_scale=kind).make() for kind in ("none", "running"))
    batch = episodes(10.0, -10.0, 10.0, -10.0)
    before = [float(one["a_0"][0]) for one in plain.assign(batch)]
    after = [float(one["a_0"][0]) for one in scaled.assign(batch)]
    assert before == [10.0, -10.0, 10.0, -10.0] and after == pytest.approx([1.0, -1.0, 1.0, -1.0])


def test_a_payoff_that_is_always_the_same_has_no_spread() -> None:
    credit = CreditSettings(name="reinforce").make()
    assert [float(one["a_0"][0]) for one in credit.assign(episodes(7.0, 7.0))] == [7.0, 7.0]


def test_returns_within_one_stay_bit_for_bit() -> None:
    plain, scaled = (CreditSettings(name="rae", return_scale=kind).make() for kind in ("none", "running"))
    batch = episodes(1.0, -1.0, 0.0, 0.3)
    for one, other in zip(plain.assign(batch), scaled.assign(batch), strict=True):
        assert np.array_equal(one["a_0"], other["a_0"])


def test_the_scale_is_that_of_all_batches_by_env_and_is_remembered() -> None:
    credit = CreditSettings(name="reinforce").make()
    assert isinstance(credit, ReturnScale)
    credit.assign(episodes(3.0, -3.0))
    credit.assign(episodes(5.0, -5.0) + episodes(0.1, -0.1, env="Small-v0"))
    weights = (1 - DECAY) * DECAY, 1 - DECAY
    expected = ((weights[0] * 9 + weights[1] * 25) / sum(weights)) ** 0.5
    assert credit.scale("Poker-v0", "a") == pytest.approx(expected)
    assert credit.scale("Small-v0", "a") == 1.0 == credit.scale("Poker-v0", "b")
    again = CreditSettings(name="reinforce").make()
    again.load_state_dict(credit.state_dict())
    assert again.state_dict() == credit.state_dict() and again.scale("Poker-v0", "a") == credit.scale("Poker-v0", "a")


def test_a_state_without_scales_is_refused() -> None:
    without = CreditSettings(name="rae", return_scale="none").make()
    with pytest.raises(ValueError, match="was saved by 'rae'"):
        CreditSettings(name="rae").make().load_state_dict(without.state_dict())


@pytest.mark.parametrize("settings", [{"name": "per_role_norm"}, {"name": "grpo", "std": True}, {"name": "maxrl"}])
def test_methods_that_divide_by_themselves_are_left_alone(settings: dict) -> None:
    assert not isinstance(CreditSettings(**settings).make(), ReturnScale)
