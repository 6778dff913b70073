"""Items that tasks make: texts from templates, training and test items apart, and the judge that counts keywords."""

import asyncio

import numpy as np
import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.tasks import on_topic
from legos_envs.tasks.argument import debate_cases
from legos_envs.tasks.argument.proof_verification import _key, _read_task
from legos_envs.tasks.open_prompts import MADE, QUESTIONS
from legos_envs.tasks.splits import part_of
from legos_envs.tasks.templates import Templates
from legos_envs.tasks.together import list_steps, plan_execute

ENVS = [
    ("Debate-v0", {}),
    ("Debate-v0", {"about": "principle"}),
    ("HeadToHead-v0", {}),
    ("EloArena-v0", {}),
    ("Tournament-v0", {}),
    ("RefineLoop-v0", {}),
    ("RefineLoop-v0", {"domain": "open"}),
    ("Amplification-v0", {}),
    ("Amplification-v0", {"rating": "person"}),
    ("ProofVerification-v0", {}),
    ("PlanExecute-v0", {}),
]


def first_prompts(id, seeds, **kwargs):
    env = legos_envs.make(id, **kwargs)
    for seed in range(seeds):
        env.reset(seed=seed)
        yield env.observe(env.agent_selection)["messages"][0]["content"]


def test_templates_fill_slots_with_different_words_and_know_how_many_texts_there_are():
    made = Templates(["the {a} of {b} or {b2}, {b}", "{a}!"], {"a": ["x", "y"], "b": ["p", "q", "r"]})
    rng = np.random.default_rng(0)
    seen = {made.draw(rng) for _ in range(500)}
    assert len(seen) == len(made) == 2 * 3 * 2 + 2
    assert "The x of p or q, p" in seen and "Y!" in seen and not any("p or p" in text for text in seen)


@pytest.mark.parametrize(("id", "kwargs"), ENVS)
def test_first_prompts_are_many(id, kwargs):
    seen = set(first_prompts(id, 150, **kwargs))
    assert len(seen) > 110


@pytest.mark.parametrize(("id", "kwargs"), [env for env in ENVS if env[0] != "PlanExecute-v0"])
def test_no_item_is_in_both_splits(id, kwargs):
    train, test = (set(first_prompts(id, 100, split=split, **kwargs)) for split in ("train", "test"))
    assert not train & test and len(train) > 70 and len(test) > 30


@pytest.mark.parametrize("split", ["train", "test"])
def test_plans_and_proofs_are_split_by_what_is_to_be_done(split):
    """Neither the letters of the steps nor the order of the premises makes another item."""
    env = legos_envs.make("PlanExecute-v0", split=split)
    for seed in range(10):
        env.reset(seed=seed)
        env.step("1. reverse the list")
        env.step("[1]")
        task = plan_execute._task(env.observe("critic_0")["messages"][0]["content"])
        order = dict.fromkeys(task.order)
        swapped = list_steps.ListTask(task.start, tuple(task.steps[i] for i in order), tuple(range(len(task.steps))))
        assert part_of(list_steps.key(task)) == part_of(list_steps.key(swapped)) == split
    theorems = first_prompts("ProofVerification-v0", 10, split=split)
    for theorem in (_read_task(_Decision(prompt))[0] for prompt in theorems):
        assert part_of(_key(theorem._replace(premises=theorem.premises[::-1]))) == split


class _Decision:
    def __init__(self, prompt):
        self.messages = [{"content": prompt}]


@pytest.mark.parametrize("id", sorted({id for id, _ in ENVS}))
def test_an_unknown_split_is_refused(id):
    with pytest.raises(ValueError, match=r"split must be one of 'all', 'train', 'test'; got 'tests' \(did you mean"):
        legos_envs.make(id, split="tests")


def test_a_match_without_splits_refuses_one():
    with pytest.raises(TypeError, match="split"):
        legos_envs.make("HeadToHead-v0", match="KuhnPoker-v0", split="test")


# --- cases -----------------------------------------------------------------------------------------------------------


def test_made_cases_have_both_labels_for_every_principle():
    rng = np.random.default_rng(1)
    cases = [debate_cases.draw_case(rng, "train") for _ in range(400)]
    made = [case for case in cases if case not in debate_cases.CASES]
    assert 20 < len(cases) - len(made) < 90 and abs(sum(case.violates for case in cases) - 200) < 60
    for form in debate_cases.PRINCIPLES:
        start = form.partition("{")[0]
        labels = [case.violates for case in made if case.principle.startswith(start)]
        assert 0.2 < np.mean(labels) < 0.8, form


@pytest.mark.parametrize(
    ("principle", "response", "violates"),
    [
        ("The response does not mention a lamp.", "Put the lamp beside the spoon in the hall.", True),
        ("The response does not mention a lamp.", "Lampions are no spoons.", False),
        ("The response mentions a lamp.", "Put the spoon down.", True),
        ("The response names Olga.", "Thank you, Olga, for the red spoon.", False),
        ("The response does not name Olga.", "Thank you, Olga, for the red spoon.", True),
        ("The response does not mention the hall.", "Olga left the spoon in the hall.", True),
        ("The response mentions the hall.", "Olga left the spoon in the attic.", True),
        ("The response has at most 6 words.", "one two three four five six", False),
        ("The response has at most 6 words.", "one two three four five six seven", True),
        ("The response asks no question.", "Is the lamp red, or is it blue?", True),
        ("The response gives no number.", "Olga waited 7 minutes.", True),
        ("The response gives no number.", "Olga waited.", False),
        ("The response is in verse.", "Olga waited.", None),
        (*debate_cases.CASES[0],),
    ],
)
def test_labels_of_made_cases_are_decided_by_code(principle, response, violates):
    assert debate_cases.label(principle, response) is violates


# --- the judge that counts keywords ----------------------------------------------------------------------------------

MOTION = "Cities need more museums and fewer car parks."


@pytest.mark.parametrize(
    ("texts", "points"),
    [
        (["It is so."], 0),
        (["Think of museums."], 1),
        (["Museums! Cities! Parks!"], 3),
        (["Museums are beautiful, quiet, wonderful, cheap; and nothing else " + "matters"], 1),
        (["Museums, museums, museums and cities."], 0),
        (["Think of museums.", "Think of parks."], 2),
        (["Think of museums.", "Think of museums."], 1),
        (["I repeat: cities need more museums, and fewer car parks!"], 0),
        (["cities need more museums", "and fewer car parks"], 3),
        ([""], 0),
    ],
)
def test_points_count_keywords_and_neither_length_nor_repetition(texts, points):
    assert on_topic.keywords(MOTION) == ["cities", "museums", "parks"]
    assert on_topic.points(texts, MOTION) == points
    assert on_topic.share(texts, MOTION) == pytest.approx(max(0, points) / 3)


def test_what_the_other_side_said_before_earns_no_points():
    first, second = "Think of museums and parks.", "Think of cities."
    assert on_topic.points([second, f"You said: {first}"], MOTION, [first, second]) == 1
    assert on_topic.points([first, second], MOTION, [first, second]) == 3  # both sides said so at once
    assert on_topic.points([second, first], MOTION, [second, first]) == 3


def test_every_subject_has_keywords_and_all_of_them_can_be_named():
    rng = np.random.default_rng(0)
    subjects = [*debate_cases.TOPICS, *(made.draw(rng) for made in (debate_cases.MOTIONS, MADE, QUESTIONS) * 100)]
    for subject in subjects:
        words = on_topic.keywords(subject)
        assert len(words) >= 2 and on_topic.points([on_topic.say(subject)], subject) == len(words)


@pytest.mark.parametrize("id", ["Debate-v0", "HeadToHead-v0", "EloArena-v0", "Tournament-v0"])
def test_this_judge_tells_random_players_apart_and_prefers_the_one_who_names_all_keywords(id):
    env = legos_envs.make(id)
    random, strong = (make_policy(f"scripted:{name}", env) for name in ("random", "on_topic"))
    seat = next(agent for agent in env.possible_agents if env.unwrapped.seats[agent].trainable)

    def returns(*topical):
        policy = lambda d: (strong if d.role == "judge" or d.agent in topical else random)(d)  # noqa: E731
        return [asyncio.run(legos_envs.play(env, policy, seed)).returns[seat] for seed in range(12)]

    assert {-1, 1} <= set(returns()) and np.mean(returns(seat)) > 0.8


def test_open_texts_and_ratings_can_be_graded_by_it():
    env = legos_envs.make("RefineLoop-v0", domain="open", rounds=1)
    strong = make_policy("scripted:on_topic", env)

    def policy(decision):
        return "It is so." if decision.role == "generator" and decision.turn else strong(decision)

    episode = asyncio.run(legos_envs.play(env, policy, 0))
    assert episode.info["first"] == 1 and episode.info["final"] == 0
