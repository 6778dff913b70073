"""Intervals that cover what they promise, and the arithmetic of pass@k."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from legos_envs.policies import RandomPolicy
from legos_train.cli.main import main
from legos_train.evaluation.intervals import (
    advice,
    bootstrap_interval,
    mean_and_pass,
    needed,
    pass_at_k,
    resampled_means,
    student,
)
from legos_train.evaluation.summary import by_seed
from legos_train.rollout import Job, Rollouts


@pytest.mark.slow
def test_identical_policies_differ_by_nothing_in_95_of_100_evaluations() -> None:
    """400 evaluations of 24 games each, played to the end, in both seats on the same deals."""
    import legos_envs

    replications, seeds = 400, 12
    policy, opponent = RandomPolicy(), RandomPolicy()
    plays = [
        Job("KuhnPoker-v0", 1000 + n, {f"player_{side}": policy, f"player_{1 - side}": opponent}, salt=side)
        for n in range(replications * seeds)
        for side in (0, 1)
    ]
    episodes = Rollouts(legos_envs.make, concurrency=256).run(plays)
    got = np.array([e.returns[f"player_{i % 2}"] for i, e in enumerate(episodes)]).reshape(replications, seeds, 2)
    covered = []
    for number, values in enumerate(got.mean(axis=2)):
        low, high = bootstrap_interval(values, number, resamples=500)
        covered.append(low <= 0 <= high)
    assert 0.92 <= np.mean(covered) <= 0.98, np.mean(covered)


def test_few_values_give_no_false_certainty() -> None:
    """The plain percentile bootstrap of 8 normal values covers the mean 90 times in 100; the expanded one 95 times."""
    rng = np.random.default_rng(0)
    plain, expanded = [], []
    for number in range(600):
        values = rng.normal(size=8)
        low, high = np.quantile(resampled_means(values, number, 400), [0.025, 0.975])
        plain.append(low <= 0 <= high)
        low, high = bootstrap_interval(values, number, resamples=400)
        expanded.append(low <= 0 <= high)
    assert np.mean(plain) < 0.925 < 0.93 < np.mean(expanded) < 0.98


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_very_few_values_do_not_either(count: int) -> None:
    """The expanded bootstrap alone covers 51 of 100 means of two values: no resample leaves their range."""
    rng = np.random.default_rng(count)
    covered = []
    for number in range(400):
        low, high = bootstrap_interval(rng.normal(size=count), number, resamples=200)
        covered.append(low <= 0 <= high)
    assert 0.92 < np.mean(covered) <= 0.99
    assert bootstrap_interval([0.25, 0.5], 0, bounds=(0, 1)) == [0, 1]


@pytest.mark.parametrize(
    ("values", "bounds", "ends"),
    [
        ([1] * 256, (0, 1), [0.9857, 1]),
        ([0.0] * 10, (0, 1), [0, 0.3085]),
        ([1.0], (0, 1), [0.025, 1]),
        ([-1] * 10, (-1, 1), [-1, -0.3830]),
        ([0.5] * 10, (0, 1), [0.5, 0.5]),
        ([1.0] * 10, (-math.inf, math.inf), [1, 1]),
        ([1.0] * 10, (1, math.inf), [1, 1]),
    ],
)
def test_values_that_all_lie_on_a_bound(values: list[float], bounds: tuple[float, float], ends: list[float]) -> None:
    assert bootstrap_interval(values, 0, bounds=bounds) == pytest.approx(ends, abs=5e-5)


@pytest.mark.parametrize("share", [0.97, 0.995])
def test_shares_near_a_bound_are_covered(share: float) -> None:
    """Of 20 games, 54 and 90 in 100 samples are all wins, whose resamples do not leave 1."""
    rng = np.random.default_rng(0)
    covered = 0
    for number in range(300):
        low, high = bootstrap_interval(rng.random(20) < share, number, resamples=200, bounds=(0, 1))
        covered += low <= share <= high
    assert covered / 300 > 0.93, covered


def test_intervals_depend_on_nothing_but_values_and_seed() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert bootstrap_interval(values, 3) == bootstrap_interval(values, 3) != bootstrap_interval(values, 4)
    assert bootstrap_interval([2.0], 0) == [2.0, 2.0]
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval([], 0)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.7062), (4, 2.7764), (5, 2.5706), (10, 2.2281), (60, 2.0003)])
def test_students_quantile(degrees: int, quantile: float) -> None:
    assert student(degrees) == pytest.approx(quantile, abs=4e-3)


def test_the_number_of_games_advised_is_the_number_that_shows_the_difference() -> None:
    rng = np.random.default_rng(1)
    pilot = rng.normal(0.1, 1.0, 20_000)
    count = needed(pilot - pilot.mean() + 0.1)
    assert count == pytest.approx((1.96 + 0.8416) ** 2 * pilot.var(ddof=1) / 0.01, abs=2)
    found = [bootstrap_interval(rng.normal(0.1, 1.0, count), n, resamples=200)[0] > 0 for n in range(150)]
    assert 0.72 <= np.mean(found) <= 0.88, "80 of 100 samples of that size should show it"


def test_advice_is_given_only_where_the_sample_does_not_carry_the_claim() -> None:
    unsure = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0]
    said = advice(unsure, bootstrap_interval(unsure, 0), 2, "the mean return")
    assert said is not None and "cannot be distinguished from 0: 12 games on 6 seeds" in said and "about" in said
    sure = [0.9, 1.0, 1.1, 1.0, 0.8]
    assert advice(sure, bootstrap_interval(sure, 0), 2, "the mean return") is None
    same = advice([1.0] * 10, [1.0, 1.0], 2, "the mean return")
    assert same is not None and "25.9%" in same, "1 - 0.05 ** (1 / 10)"
    assert "one seed" in str(advice([0.5], [0.5, 0.5], 2, "it"))


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                draws = list(itertools.combinations(range(n), k))
                share = sum(any(i < c for i in draw) for draw in draws) / len(draws)
                assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)
    with pytest.raises(ValueError, match="1 <= k <= samples"):
        pass_at_k(4, 2, 5)


def test_mean_and_pass_over_problems() -> None:
    found = mean_and_pass([[True, False, False, False], [True, True, True, True], [False] * 4], 0)
    assert found["problems"] == 3 and found["samples"] == 4
    assert found["mean@4"] == pytest.approx((0.25 + 1 + 0) / 3) == found["pass@1"]
    assert found["pass@2"] == pytest.approx((0.5 + 1 + 0) / 3) and found["pass@4"] == pytest.approx(2 / 3)


def test_a_seed_counts_only_when_every_seat_was_scored() -> None:
    def game(seed: int, kind: str = "win") -> dict[str, object]:
        return {"seed": seed, "outcomes": {"a": kind}, "problem": None}

    records = [game(0), game(0), game(1), game(2), game(2, "unscored"), game(3), game(3)]
    assert [key for key in by_seed(records, 2)] == [("seed", 0), ("seed", 3)]


def test_random_against_optimal_matches_the_exact_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Uniform play against the equilibrium loses 1/6 in either seat of Kuhn poker."""
    assert main(["eval", "KuhnPoker-v0", "-m", "random", "--opponent", "optimal", "-n", "2000", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    exact = row["exact"]["against_opponent"]
    assert exact == {"player_0": pytest.approx(-1 / 6), "player_1": pytest.approx(-1 / 6)}
    low, high = row["ci95"]
    assert low <= -1 / 6 <= high and high - low < 0.1 and row["advice"] == []


def test_a_policy_against_itself_is_no_foregone_conclusion(capsys: pytest.CaptureFixture[str]) -> None:
    """Were chance in the policies the same on both sides of a deal, every seed would come out even and show nothing."""
    assert main(["eval", "KuhnPoker-v0", "-m", "random", "--opponent", "self", "-n", "100", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    low, high = row["ci95"]
    assert row["opponent"] == "random" and low <= 0 <= high and 0.2 < high - low < 0.8


def test_two_policies_are_compared_on_the_same_deals(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "KuhnPoker-v0", "-m", "optimal", "-m", "random", "-m", "scripted:first", "-n", "100"]
    assert main([*arguments, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(c["first"], c["second"]) for c in results["comparisons"]] == [
        ("optimal", "random"),
        ("optimal", "scripted:first"),
        ("random", "scripted:first"),
    ]
    means = {row["policy"]: row["mean"] for row in results["results"]}
    for one in results["comparisons"]:
        assert one["difference"] == pytest.approx(means[one["first"]] - means[one["second"]]) and one["seeds"] == 50
        assert bool(one["advice"]) == (one["ci95"][0] <= 0 <= one["ci95"][1])
