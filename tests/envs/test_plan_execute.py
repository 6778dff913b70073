"""PlanExecute: the tasks are what they say, everybody sees only his part, and rewards are those of the page."""

import asyncio

import numpy as np
import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.tasks.together import list_steps
from legos_envs.tasks.together.list_steps import ListTask, apply, score
from legos_envs.testing import check_env

ROLES = ("planner", "executor", "critic", "reviser")


def play(seed=0, **said_or_kwargs):
    """Plays with fixed texts by role; `good` for the others."""
    said = {role: said_or_kwargs.pop(role) for role in ROLES if role in said_or_kwargs}
    env = legos_envs.make("PlanExecute-v0", **said_or_kwargs)
    good = make_policy("scripted:good", env)
    return asyncio.run(legos_envs.play(env, lambda d: said.get(d.role) or good(d), seed))


def task_of(seed, **kwargs):
    env = legos_envs.make("PlanExecute-v0", **kwargs)
    return asyncio.run(legos_envs.play(env, make_policy("scripted:good", env), seed)).info["truth"]


def shown(episode, role):
    return "\n".join(m["content"] for m in episode.trajectories[f"{role}_0"].turns[-1].observation)


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ("reverse the list", [1, 2, 3], [3, 2, 1]),
        ("sort the list from small to large", [3, 1, 2], [1, 2, 3]),
        ("double every number", [1, 5], [2, 10]),
        ("remove the first number", [1, 2, 3], [2, 3]),
        ("remove the last number", [1, 2, 3], [1, 2]),
        ("move the first number to the end", [1, 2, 3], [2, 3, 1]),
        ("swap the first and the last number", [1, 2, 3], [3, 2, 1]),
        ("swap the first and the last number", [1], [1]),
        ("put the sum of all numbers at the end", [1, 2], [1, 2, 3]),
        ("add 7 to every number", [1, 2], [8, 9]),
    ],
)
def test_steps_by_hand(words, before, after):
    given = list(before)
    assert apply([words], given) == after and given == before


def test_every_step_takes_any_list_and_orders_follow_the_letters():
    assert all(type(apply([words], numbers)) is list for words in list_steps.STEPS for numbers in ([], [1], [1, 2]))
    task = ListTask((1, 2, 3), ("double every number", "remove the first number", "reverse the list"), (2, 1, 0))
    assert task.text.endswith("Order: C B A") and task.result == [4, 2]


@pytest.mark.parametrize("count", range(2, 9))
def test_made_tasks_need_their_order(count):
    for seed in range(60):
        task = list_steps.make(np.random.default_rng(seed), count)
        assert len(set(task.steps)) == count and sorted(task.order) == list(range(count))
        assert task.result not in (apply(task.steps, task.start), list(task.start)) and len(task.result) >= 2


def test_scores():
    assert score([1, 2, 3], [1, 2, 3]) == 1 and score([1, 9, 3], [1, 2, 3]) == pytest.approx(2 / 3)
    assert score([1, 2], [1, 2, 3, 4]) == 0.5 and score([1, 2, 3, 4], [1, 2]) == 0.5 and score([], [1]) == 0
    assert score([1, 2], [1, 2, 3], partial=False) == 0 and score([1], [1], partial=False) == 1


def test_all_are_paid_for_the_end_and_two_for_the_improvement():
    truth = task_of(0)
    half = [truth[0], *[0] * (len(truth) - 1)]
    right, first = f"{truth}", 1 / len(truth)
    episode = play(executor=f"I think {half}", reviser=right)
    bonus = 0.5 * (1 - first)
    assert episode.returns == pytest.approx(
        {"planner_0": 1, "executor_0": 1, "critic_0": 1 + bonus, "reviser_0": 1 + bonus}
    )
    assert episode.info["lists"] == [half, truth] and episode.outcome == "solved"
    episode = play(executor=right, reviser=f"{half}", improvement_weight=2)
    assert episode.returns["planner_0"] == pytest.approx(first) and episode.outcome == "failed"
    assert episode.returns["critic_0"] == pytest.approx(first + 2 * (first - 1))
    episode = play(executor=f"{half}", reviser=f"{half}", partial=False)
    assert set(episode.returns.values()) == {0} and (episode.info["first"], episode.info["final"]) == (0, 0)


def test_more_rounds_score_the_first_and_the_last_list():
    said = iter(["[0]", "[1]", f"{task_of(0)}"])
    env = legos_envs.make("PlanExecute-v0", rounds=3)
    good = make_policy("scripted:good", env)
    episode = asyncio.run(legos_envs.play(env, lambda d: next(said) if d.role == "reviser" else good(d), 0))
    assert len(episode.info["lists"]) == 4 and episode.info["lists"][1:3] == [[0], [1]] and episode.turns == 8
    assert episode.returns["reviser_0"] == 1  # right at first, right at last


def test_everybody_sees_only_his_part():
    episode = play(planner="1. PLAN", executor="[77, 78]", critic="COMMENT", reviser="[5]")
    numbers = shown(episode, "executor").partition("List: ")[2].partition("\n")[0]
    sees = {role: shown(episode, role) for role in ROLES}
    for what, who in {
        "Order: ": {"planner", "critic"},
        f"List: {numbers}": {"executor", "critic", "reviser"},
        "1. PLAN": {"executor", "critic", "reviser"},
        "77, 78": {"critic", "reviser"},
        "COMMENT": {"reviser"},
    }.items():
        assert {role for role in ROLES if what in sees[role]} == who, what


def test_long_plans_are_cut():
    sees = shown(play(planner="1. x" + "y" * 5000, max_chars=100), "executor")
    assert "characters cut" in sees and len(sees) < 400


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_the_reviser_keeps_what_he_was_told_over_the_rounds(memory):
    episode = play(rounds=2, memory=memory, critic="COMMENT")
    assert "Plan:\n1. " in shown(episode, "reviser") and "Order: " in shown(episode, "critic")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("the list is empty", "the reply states no list; write it as"),
        ("[a, b]", "the list must have whole numbers"),
        ("[1, 2.5]", "the list must have whole numbers"),
        ("[1 2]", "the list must have whole numbers"),
        ("[1,,2]", "the list must have whole numbers"),
        ("[" + "1," * 100 + "1]", "the list must have whole numbers"),
        ("[" + "9" * 19 + "]", "the list must have whole numbers"),
        ("[--1]", "the list must have whole numbers"),
        ("[\u0663]", "the list must have whole numbers"),
    ],
)
def test_what_is_no_list_is_an_invalid_move_that_others_do_not_gain_from(said, reason):
    for role in ("executor", "reviser"):
        episode = play(**{role: said})
        assert episode.returns == {f"{r}_0": -1.0 * (r == role) for r in ROLES} and episode.outcome == "invalid"
        assert reason in episode.trajectories[f"{role}_0"].info["invalid"]


def test_lists_may_be_empty_negative_and_boxed():
    assert play(executor="[]").info["lists"][0] == [] and play(executor="[-3,4]").info["lists"][0] == [-3, 4]
    assert play(executor="\\boxed{1, 2}", action_format="boxed").info["lists"][0] == [1, 2]


def test_a_good_team_beats_a_mixed_one_beats_a_poor_one():
    def mean(name):
        make = lambda: legos_envs.make("PlanExecute-v0")  # noqa: E731
        episodes = asyncio.run(legos_envs.play_many(make, make_policy(name, make()), range(60), concurrency=1))
        return sum(e.returns["planner_0"] for e in episodes) / 60

    good, mixed, poor = map(mean, ("scripted:good", "random", "scripted:poor"))
    assert good == 1 and good - mixed > 0.05 and mixed - poor > 0.3


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"steps": 1}, "steps must be a whole number from 2 to 8; got 1"),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 10; got 0"),
        ({"partial": "yes"}, "partial must be one of True, False; got 'yes'"),
        ({"improvement_weight": -1}, "improvement_weight must be a finite number from 0 to 10"),
        ({"max_chars": 0}, "max_chars must be a whole number"),
    ],
)
def test_arguments_are_checked(kwargs, message):
    with pytest.raises(ValueError, match=message):
        legos_envs.make("PlanExecute-v0", **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kwargs", [{"steps": 8, "rounds": 3, "memory": "state"}, {"partial": False, "action_format": "boxed"}]
)
def test_variants_keep_the_laws(kwargs):
    check_env("PlanExecute-v0", episodes=10, skip=("seed.process",), raise_on_failure=True, **kwargs)
