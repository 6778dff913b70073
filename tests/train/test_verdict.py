"""The sentence at the end of a run: of numbers with and without intervals, and of a run without updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legos_train.observe import Result, eval_numbers
from legos_train.observe.browser.entries import RunEntry
from legos_train.observe.no_update import what_to_change
from legos_train.observe.verdict import better_weights, gain, verdict


def played(mean: float, low: float, high: float, name: str = "vs_random") -> dict[str, float]:
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def test_the_interval_of_a_gain_by_hand() -> None:
    """Each side takes the ends that face each other: 0.4 below the later number, 0.1 above the earlier one."""
    before, after = played(0.0, -0.3, 0.1), played(1.0, 0.6, 1.2)
    change, low, high = gain(before, after, "vs_random")
    assert change == 1.0
    assert low == pytest.approx(1 - (0.4**2 + 0.1**2) ** 0.5) and high == pytest.approx(1 + (0.2**2 + 0.3**2) ** 0.5)


def test_less_is_better_for_some_numbers() -> None:
    change, low, high = gain(played(1.0, 0.8, 1.1, "nash_conv"), played(0.4, 0.3, 0.6, "nash_conv"), "nash_conv")
    assert low < change < high and change == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("before", "after", "begins", "says"),
    [
        (played(0.0, -0.1, 0.1), played(0.5, 0.4, 0.6), "Learned: ", "95 % interval of the gain +0.359 to +0.641"),
        (played(0.0, -0.1, 0.1), played(0.1, 0.0, 0.2), "Not shown", "interval of the gain -0.041 to +0.241"),
        (played(0.0, -0.1, 0.1), played(-0.5, -0.6, -0.4), "Worse than at the start: ", "-0.641 to -0.359"),
        (
            {"nash_conv": 0.9},
            {"nash_conv": 0.1},
            "Learned: NashConv",
            "from 0.900 to 0.100 (last weights), computed ex",
        ),
        ({"nash_conv": 0.9}, {"nash_conv": 0.899}, "Not shown to have learned: NashConv", "computed exactly"),
        ({}, played(0.7, 0.6, 0.8, "wins_vs_base"), "Learned: the last", "70% of their games against the base"),
        ({}, played(0.55, 0.45, 0.65, "wins_vs_base"), "Not shown", "interval 45% to 65%; equals win 50 %"),
        ({}, played(0.3, 0.2, 0.4, "wins_vs_base"), "Worse than at the start", "30%"),
        ({}, played(0.5, 0.5, 0.5, "wins_vs_base"), "Not shown to have learned", "too few or too alike"),
        ({}, played(0.46, 0.46 - 1e-12, 0.46, "wins_vs_base"), "Not shown to have learned", "too few or too alike"),
        (played(0.0, 0.0, 0.0), played(1.0, 1.0, 1.0), "Not shown to have learned", "too few or too alike"),
        ({}, {"unscored": 1.0, "win": 0.0}, "It is not known whether it learned", "no game of the evaluation"),
    ],
)
def test_what_is_said(before: dict[str, float], after: dict[str, float], begins: str, says: str) -> None:
    said = verdict(before, after, updates=5)
    assert said.startswith(begins) and says in said


def test_the_result_so_far_has_the_last_evaluation_of_every_env(tmp_path: Path) -> None:
    """A row may hold held-out envs only; the run's own game was then missing from the result."""
    rows: list[dict[str, Any]] = [
        {
            "step": 10,
            "eval": {"nash_conv": 0.6, "nash_conv_average": 0.7, "held/accuracy": 0.1},
            "learning_updates": 1,
            "seconds": 1.0,
        },
        {"step": 12, "eval": {"held/accuracy": 0.2}, "learning_updates": 1, "seconds": 1.0},
        {"step": 13, "learning_updates": 1, "seconds": 1.0},
    ]
    result = Result.so_far(tmp_path, rows, {"nash_conv": 0.9, "held/accuracy": 0.1}, 20, "interrupted")
    assert result.last == {"nash_conv": 0.6, "held/accuracy": 0.2} and result.average == {"nash_conv": 0.7}
    assert "went from 0.900 to 0.600" in result.verdict
    entry = RunEntry(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({**row, "eval": row.get("eval")}) + "\n" for row in rows)
    )
    assert entry.line()["numbers"]["nash_conv"] == 0.6


def test_points_are_shown_without_an_interval() -> None:
    assert eval_numbers.formatted({"win": 0.5, "win_low": 0.5, "win_high": 0.5}, "win") == "0.500"
    assert eval_numbers.formatted({"win": 0.5, "win_low": 0.4, "win_high": 0.6}, "win") == "0.500 (0.40 to 0.60)"


def test_a_contest_is_judged_by_wins_against_the_base_and_every_env_has_its_sentence() -> None:
    after = {**played(0.9, 0.8, 1.0), **played(0.5, 0.4, 0.6, "wins_vs_base")}
    assert verdict(played(0.0, -0.1, 0.1), after, updates=1).startswith("Not shown to have learned: the last weights")
    two = {f"{env}/{name}": value for env in ("a", "b") for name, value in after.items()}
    assert verdict({}, two, updates=1).count("weights win 50%") == 2


def test_a_role_that_gave_up_is_said() -> None:
    """A prover that always fails pays the verifier, so the mean over both rose from -0.336 to 0."""
    before = {**played(-0.336, -0.42, -0.25, "return"), **played(-0.516, -0.67, -0.36, "return_prover")}
    before |= played(-0.156, -0.33, 0.02, "return_verifier")
    after = {
        **played(0.0, 0.0, 0.0, "return"),
        **played(-1.0, -1.0, -1.0, "return_prover"),
        **played(1.0, 1.0, 1.0, "return_verifier"),
    }
    said = verdict(before, after, updates=5)
    assert said.startswith("Learned in part: mean return went from -0.336 to 0.000")
    assert said.endswith("But the mean return of prover went from -0.516 to -1.000, the same in every game.")
    two = verdict({f"a/{k}": v for k, v in before.items()}, {f"a/{k}": v for k, v in after.items()}, updates=5)
    assert two.startswith("Learned in part: a: ") and two.endswith(said.partition("But the")[2])
    noise = after | played(-0.6, -0.7, -0.5, "return_prover")
    assert verdict(before, noise, updates=5).startswith("Learned: ")
    worse = after | played(-0.9, -0.95, -0.85, "return_prover")
    assert verdict(before, worse, updates=5).endswith("mean return of prover went from -0.516 to -0.900.")
    silent = before | played(0.008, 0.0, 0.02, "return_prover")
    assert "But the mean return of prover" in verdict(silent, after | played(0.0, 0.0, 0.0, "return_prover"), updates=5)
    unpaid = before | played(0.0, 0.0, 0.0, "return_prover")
    assert "But" not in verdict(unpaid, after | played(0.0, 0.0, 0.0, "return_prover"), updates=5)


def test_a_number_that_stood_still_far_from_its_optimum_is_said(tmp_path: Path) -> None:
    """Of the weights that the sentence is about: here the last ones moved until the end, and the average did not."""
    rows = [
        {"step": step, "seconds": 1.0, "learning_updates": 1, "eval": {"nash_conv": last, "nash_conv_average": average}}
        for step, last, average in [
            (50, 0.5, 0.6),
            (100, 0.4, 0.33),
            (150, 0.3, 0.335),
            (200, 0.2, 0.33),
            (250, 0.12, 0.332),
        ]
    ]
    said = {
        weights: Result.from_rows(
            tmp_path, rows, {"nash_conv": 0.9}, {"nash_conv": rows[-1]["eval"][key]}, weights
        ).verdict
        for weights, key in (("last", "nash_conv"), ("average", "nash_conv_average"))
    }
    assert (
        said["last"]
        == "Learned: NashConv (0 is an equilibrium) went from 0.900 to 0.120 (last weights), computed exactly."
    )
    assert said["average"].startswith(
        "Learned, then stood still: NashConv (0 is an equilibrium) went from 0.900 to 0.332 "
    )
    assert "has hardly moved since step 100" in said["average"] and "another seed" in said["average"]


def test_what_has_arrived_may_stand_still() -> None:
    near = [(step, {"nash_conv": 0.02}) for step in range(0, 300, 50)]
    assert "stood still" not in verdict({"nash_conv": 0.9}, {"nash_conv": 0.02}, updates=1, history=near)


def test_without_an_update_nothing_was_learned_whatever_the_numbers_say() -> None:
    said = verdict({"nash_conv": 0.9}, {"nash_conv": 0.1}, updates=0, advice="use a judge")
    assert said == "Learned nothing: no step made an update from rewards. Use a judge."


def test_updates_without_rewards_may_still_do_harm() -> None:
    said = verdict({"nash_conv": 0.9}, {"nash_conv": 1.2}, updates=0, advice="use a judge")
    assert said.startswith("Learned nothing: ") and "Worse than at the start: NashConv" in said


def test_exact_numbers_show_nothing_if_answers_became_illegal() -> None:
    """They count legal answers only: a policy that gives no other can be said to play an equilibrium."""
    before = {"a/nash_conv": 0.9, "a/illegal": 0.001}
    said = verdict(before, {"a/nash_conv": 0.6, "a/illegal": 0.9}, updates=3)
    assert said.startswith("Not shown to have learned: ") and "rose from 0.001 to 0.900" in said
    assert verdict(before, {"a/nash_conv": 0.6, "a/illegal": 0.04}, updates=3).startswith("Learned: ")
    lost = {"average": {"a/nash_conv": 0.1, "a/illegal": 0.9}, "last": {"a/nash_conv": 0.5, "a/illegal": 0.01}}
    name, why = better_weights(lost, ("a/nash_conv", -1))
    assert name == "last" and why.endswith("; more illegal answers: average")


@pytest.mark.parametrize(
    ("average", "last", "key", "expected"),
    [
        (-0.44, 0.13, ("vs_random", 1), "last"),
        (2.68, 1.93, ("nash_conv", -1), "last"),
        (0.05, 0.26, ("nash_conv", -1), "average"),
        (0.5, 0.5, ("vs_random", 1), "average"),
    ],
)
def test_the_better_weights_are_published(average: float, last: float, key: tuple[str, int], expected: str) -> None:
    chosen, why = better_weights({"average": {key[0]: average}, "last": {key[0]: last}}, key)
    assert chosen == expected and f"average {average:.3f}, last {last:.3f}" in why


def test_the_average_is_published_where_nothing_tells() -> None:
    assert better_weights({"average": {}, "last": {}}, None)[0] == "average"
    assert better_weights({"last": {}}, None) == ("last", "there are no others")


STEP: dict[str, Any] = {"step": 1, "episodes": 10, "turns": 20, "outcomes": {"ended": 10}, "reward": {"a": 0.0}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outcomes": {"unscored": 10}}, "--seat judge=MODEL"),
        ({"invalid_rate": 1.0}, "in 100% of the games the policy made an invalid move"),
        ({"dropped": {"too_long": 20}}, "20 of 20 prompts and actions did not fit: raise --context"),
        ({"dropped": {"cut": 20}}, "--sampling.max-tokens"),
        ({"left_out": {"filtered": 20}}, "filter.keep removed every trajectory"),
        ({"left_out": {"not_finite": 10}}, "fix the reward"),
        ({"skipped": 1, "zero_advantages": 0.1}, "smaller --optim.lr"),
        ({"zero_advantages": 1.0}, "every advantage was 0"),
        ({"episodes": 0}, "no episode was played"),
    ],
)
def test_a_run_without_updates_is_told_what_to_change(changes: dict[str, Any], says: str) -> None:
    assert says in what_to_change([{**STEP, **changes}])


def test_rows_that_do_not_say_what_was_learned_leave_it_unknown(tmp_path: Path) -> None:
    rows = [{"step": 1, "updates": 1, "seconds": 1.0}]
    assert Result.from_rows(tmp_path, rows, {}, {}, "last").updates is None
