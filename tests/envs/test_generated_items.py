"""Generated items: thousands of different ones, sound by themselves, and the same fifth held out everywhere."""

import asyncio
from collections import Counter

import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.tasks.code import generated, sandboxed_calls
from legos_envs.tasks.code.families import FAMILIES
from legos_envs.tasks.code.red_blue_data import POLICIES, SECRETS
from legos_envs.tasks.problems import facts, problem_key
from legos_envs.tasks.splits import part_of

EXERCISES = [generated.exercise(i) for i in range(0, generated.SIZE, 7)]


def values_of(source, item, calls):
    """What our own one-line functions give, run by Python itself."""
    names = {}
    exec(source, names)

    def value(call):
        try:
            return names[item.name](*call)
        except (ValueError, IndexError):  # max([])
            return sandboxed_calls.FAILED

    return [value(call) for call in calls]


@pytest.mark.slow
def test_there_are_thousands_of_exercises_of_every_family_and_three_in_four_have_a_bug():
    everything = [generated.exercise(i) for i in range(generated.SIZE)]
    assert len({(made.item.signature, made.item.spec) for made in everything}) > 5000 and len(FAMILIES) == 24
    assert sum(made.patch.witness is not None for made in everything) == 7472  # stands on the page of RedBlue
    assert {name for name in generated.NAMES} == {made.item.name for made in everything}
    shares = Counter(made.part for made in everything)
    assert 0.15 < shares["test"] / generated.SIZE < 0.25


def test_the_first_call_tells_every_wrong_program_from_the_reference():
    for made in EXERCISES:
        item = made.item
        right = values_of(item.reference, item, item.calls)
        assert sandboxed_calls.FAILED not in right and len({*map(str, item.calls)}) == len(item.calls) == 6
        assert len({*item.wrong}) == 3
        for wrong in item.wrong:
            same = [sandboxed_calls.same(a, b) for a, b in zip(values_of(wrong, item, item.calls), right)]
            assert not same[0] and any(same), f"{item.spec} {wrong}"


def test_the_sandbox_agrees_with_python():
    for made in EXERCISES[:40]:
        results = sandboxed_calls.reference_results(made.item)
        assert results == values_of(made.item.reference, made.item, made.item.calls)


def test_found_functions_have_their_bug_where_it_is_said_to_show():
    for made in EXERCISES:
        item = made.patch
        assert (item.witness is None) == (item.code == item.reference)
        if item.witness is not None:
            assert item.holds(list(item.witness)), item
            assert values_of(item.code, item, [item.witness]) != values_of(item.reference, item, [item.witness])


def test_facts_are_thousands_of_passages_and_every_fact_is_in_both_parts():
    passages = facts.all_passages()
    assert len(passages) == facts.SIZE and len({p.text for p in passages}) > 3900
    sentences = {"train": set(), "test": set()}
    for passage in passages:
        found = passage.text.split(". ")
        assert len(found) == facts.FACTS and all(passage.title in sentence for sentence in found)
        sentences[part_of(passage.text)] |= {sentence.rstrip(".") for sentence in found}
    assert sentences["train"] == sentences["test"]
    assert len(sentences["train"]) == 2 * len(facts.TOWNS) * len(facts.KINDS)
    assert facts.values_after("The river of Kelso is the ") == facts.KINDS["river"][1]
    assert facts.values_after("Water boils at ") == ()


def first_prompts(id, split, seeds=60, **arguments):
    env, prompts = legos_envs.make(id, split=split, **arguments), set()
    for seed in range(seeds):
        env.reset(seed=seed)
        prompts.add(str(env.observe(env.agent_selection)["messages"]))
    return prompts


@pytest.mark.parametrize(
    ("id", "arguments"),
    [
        ("CodeGen-v0", {}),
        ("CodeGen-v0", {"source": "written"}),
        ("RedBlue-v0", {}),
        ("RedBlue-v0", {"variant": "policy", "probes": 0, "exchanges": 1}),
        ("RedBlue-v0", {"variant": "patch"}),
        ("RedBlue-v0", {"variant": "patch", "source": "written"}),
        ("SPICE-v0", {}),
        ("SPICE-v0", {"source": "sample"}),
        ("Dataset-v0", {"size": 300}),
        ("Dataset-v0", {"source": [{"question": f"{i}?", "answer": "1"} for i in range(40)]}),
        pytest.param("GSM8K-v0", {}, marks=pytest.mark.slow),
        ("EnsembleVote-v0", {"level": 2, "size": 300}),
        ("SelfDistillation-v0", {"order": "random", "size": 300}),
    ],
)
def test_training_and_test_items_are_disjoint(id, arguments):
    shown = env_secrets if id == "RedBlue-v0" and not arguments else first_prompts
    train, test = shown(id, "train", **arguments), shown(id, "test", **arguments)
    assert train and test and not train & test


def env_secrets(id, split):
    return {env_secret(split, seed) for seed in range(60)}


def env_secret(split, seed):
    env = legos_envs.make("RedBlue-v0", split=split)
    env.reset(seed=seed)
    return env.unwrapped.private_texts("defender_0")[0]


def test_words_and_rules_are_held_out_by_their_text():
    assert {env_secret("test", seed) for seed in range(99)} <= {word for word in SECRETS if part_of(word) == "test"}
    assert {part_of(policy.rule) for policy in POLICIES} == {"train", "test"}


def test_generated_problems_are_for_training_unless_said_otherwise():
    assert first_prompts("GSM8K-v0", None) == first_prompts("GSM8K-v0", "train") != first_prompts("GSM8K-v0", "all")


@pytest.mark.parametrize("id", ["CodeGen-v0", "RedBlue-v0", "SPICE-v0", "Dataset-v0", "ProposerSolver-v0"])
def test_an_unknown_split_is_refused(id):
    with pytest.raises(ValueError, match=r"split must be one of 'all', 'train', 'test'; got 'tset'.*mean 'test'"):
        legos_envs.make(id, split="tset").reset(seed=0)


@pytest.mark.parametrize("domain", ["arithmetic", "free"])
def test_only_problems_of_the_split_are_played(domain):
    env = legos_envs.make("ProposerSolver-v0", split="test", domain=domain)
    for seed in range(8):
        episode = asyncio.run(legos_envs.play(env, make_policy("optimal", env), seed))
        problem = episode.trajectories["proposer_0"].info["problem"]
        assert episode.outcome == "played" and part_of(problem_key(problem, domain)) == "test"


def test_a_proposal_of_the_other_part_earns_nothing_and_is_not_played():
    def play(split, options=None):
        env = legos_envs.make("ProposerSolver-v0", split=split)
        said = lambda d: "Problem: 3 + 4\nAnswer: 7" if d.role == "proposer" else "Answer: 7"  # noqa: E731
        return asyncio.run(legos_envs.play(env, said, 0, options))

    mine = part_of(problem_key("4+3", "arithmetic"))
    other = {"train": "test", "test": "train"}[mine]
    assert play(mine).outcome == play("all").outcome == "played"
    off = play(other)
    assert off.outcome == "off_split" and off.turns == 1 and off.returns["proposer_0"] == 0
    with pytest.raises(ValueError, match=f"option problem must be of split '{other}', and '4 \\+ 3' is not"):
        play(other, {"problem": "4 + 3"})


def test_a_generated_exercise_by_its_index():
    for id, arguments in (("CodeGen-v0", {}), ("RedBlue-v0", {"variant": "patch"})):
        env = legos_envs.make(id, **arguments)
        env.reset(seed=0, options={"index": 5})
        assert generated.exercise(5).item.spec.removeprefix("It ") in str(env.observe(env.agent_selection))
        with pytest.raises(ValueError, match="index must be a whole number from 0 to 9999; got 10000"):
            env.reset(seed=0, options={"index": 10_000})
