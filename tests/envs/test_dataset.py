"""One problem an episode: which one a seed gets, what is paid, what is told when."""

import asyncio
import json
from pathlib import Path

import pytest

import legos_envs
from legos_envs import Rubric, Unscored
from legos_envs.scoring import answers
from legos_envs.tasks import given_items, raw_rows
from legos_envs.tasks.problems import Dataset, sources
from legos_envs.tasks.problems.gsm8k import GSM8K
from legos_envs.tasks.problems.sources import Problem
from legos_envs.testing import check_env

DATA = Path(__file__).with_name("data")
SHARED = Path(__file__).parents[3] / "shared" / "data"
ROWS = [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in range(1, 8)]


def play(env, said, seed=0, **options):
    return asyncio.run(legos_envs.play(env, lambda _: said, seed, options))


# --- which problem ---------------------------------------------------------------------------------------------------


def indices(env, seeds, **options):
    found = []
    for seed in seeds:
        env.reset(seed=seed, options=options)
        found.append(env.infos["solver_0"]["index"])
    return found


def test_seeds_take_every_problem_once_then_again_in_another_order():
    env = Dataset(ROWS)
    first, second = indices(env, range(7)), indices(env, range(7, 14))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second and first != list(range(7))
    assert first == indices(Dataset(ROWS), range(7))
    assert len(set(indices(Dataset(split="all", size=1500), range(1500)))) == 1500


def test_other_orders():
    assert indices(Dataset(ROWS, order="sequential"), range(9)) == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    drawn = indices(Dataset(ROWS, order="random"), range(100))
    assert set(drawn) == set(range(7)) and drawn == indices(Dataset(ROWS, order="random"), range(100))


def test_an_index_beyond_the_size_is_one_that_is_drawn():
    env = Dataset(size=50, split="test")
    beyond = {seed for seed in env.drawn if seed >= 50}
    assert indices(env, range(2), index=max(beyond)) == [max(beyond)] * 2
    other = next(n for n in range(50, max(beyond)) if n not in beyond)
    with pytest.raises(ValueError, match="option index must be a whole number from 0 to 49"):
        env.reset(seed=0, options={"index": other})


def test_the_index_can_be_fixed():
    assert indices(Dataset(ROWS), range(5), index=3) == [3] * 5
    for bad in (-1, 7, 1.0, True):
        with pytest.raises(ValueError, match="option index must be a whole number from 0 to 6"):
            Dataset(ROWS).reset(seed=0, options={"index": bad})


def test_at_nested_tables_problems_are_drawn():
    class Two(legos_envs.TextEnv):
        name = "Two-v0"
        inner = Dataset()
        seats = {f"{side}/solver_0": legos_envs.Seat("solver") for side in "ab"}

        def play(self, table):
            yield from table.gather(self.inner.play(table.sub(side)) for side in "ab")

    env = Two()
    env.reset(seed=0)
    assert env.infos["a/solver_0"]["index"] != env.infos["b/solver_0"]["index"]
    assert play(env, "Answer: 1").returns.keys() == {"a/solver_0", "b/solver_0"}


# --- prompts, rewards, facts -----------------------------------------------------------------------------------------


def test_the_prompt_template_is_filled_in_literally():
    env = Dataset([{"question": "Is {x} in {0}?", "answer": "yes"}], prompt="Q: {question} {x} \\boxed{}")
    env.reset(seed=0)
    assert env.observe("solver_0")["messages"][0]["content"] == "Q: Is {x} in {0}? {x} \\boxed{}"


@pytest.mark.parametrize(("action_format", "asks"), [("bracket", "Answer: RESULT"), ("boxed", "\\boxed{RESULT}")])
def test_the_default_prompt_asks_for_the_format(action_format, asks):
    env = Dataset(ROWS, action_format=action_format)
    env.reset(seed=0)
    assert asks in env.observe("solver_0")["messages"][0]["content"]


@pytest.mark.parametrize(
    ("said", "reward", "correct", "answer"),
    [
        ("1 + 1 is 2.\nAnswer: 2", 1.1, True, "2"),
        ("I get 2", 1.0, True, "2"),
        ("\\boxed{3}", 0.1, False, "3"),
        ("It is 3", 0.0, False, "3"),
        ("no idea", 0.0, False, None),
        ("Answer: 1 + 1", 0.1, False, "1 + 1"),
        ("<think>Answer: 3</think>Answer: 2", 1.1, True, "2"),
        ("Answer: 2 or 3", 0.1, False, "2 or 3"),
    ],
)
def test_rewards(said, reward, correct, answer):
    episode = play(Dataset(ROWS), said, index=0)
    assert episode.returns == {"solver_0": pytest.approx(reward)}
    assert (episode.info["correct"], episode.info["answer"], episode.info["truth"]) == (correct, answer, "2")
    assert episode.outcome == ("correct" if correct else "wrong")
    assert set(episode.info["scores"]) == {"correct", "format", "length"}


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("6 / 3 = <<6/3=2>>2 each.\n#### 2", "2"),
        ("So $x = \\boxed{2}$.", "2"),
        ("2", "2"),
        pytest.param("x > 2", "x > 2", marks=pytest.mark.slow),  # loads a library for formulas
    ],
)
def test_the_truth_of_a_worked_answer_is_what_it_marks(answer, truth):
    env = Dataset([{"question": "?", "answer": answer}])
    episode = play(env, f"Answer: {truth}")
    assert (episode.info["truth"], episode.outcome) == (truth, "correct")


def test_length_is_a_metric_until_it_has_a_weight():
    said = "Answer: 2" + " " * 11 + "x" * 80
    assert play(Dataset(ROWS, max_chars=200), said, index=0).info["scores"]["length"] == pytest.approx(-0.5)
    weighted = Dataset(ROWS, max_chars=200, weights={"length": 0.4, "correct": 0})
    assert play(weighted, said, index=0).returns["solver_0"] == pytest.approx(0.1 - 0.2)
    assert play(weighted, "x" * 500, index=0).returns["solver_0"] == pytest.approx(-0.4)


def test_saying_nothing_is_invalid():
    assert play(Dataset(ROWS), "").outcome == "invalid" and play(Dataset(ROWS), "<think>2").returns == {"solver_0": -1}


def test_a_rubric_of_ones_own():
    seen = {}

    def starts(text, question, truth, answer):
        seen.update(text=text, question=question, truth=truth, answer=answer)
        return float(text.startswith("So"))

    episode = play(Dataset(ROWS, rubric=Rubric([starts], [3.0])), "So 2", index=0)
    assert (
        episode.returns == {"solver_0": 3.0} and episode.info["correct"] and episode.info["scores"] == {"starts": 1.0}
    )
    assert seen == {"text": "So 2", "question": "What is 1 + 1?", "truth": "2", "answer": "2"}


def test_a_rubric_may_leave_an_episode_without_a_score():
    def fails(text):
        raise Unscored("the judge is away")

    assert play(Dataset(ROWS, rubric=Rubric([fails])), "2").outcome == "unscored"


def test_the_truth_is_told_only_after_the_end():
    env = Dataset([{"question": "Who?", "answer": "zebra"}])
    env.reset(seed=0)
    env.step("")  # the second try comes
    shown = json.dumps([env.observe("solver_0"), env.infos, env.render(), env.state()])
    assert "zebra" not in shown and "truth" not in shown
    env.step("Answer: lion")
    assert env.infos["solver_0"]["truth"] == "zebra" and "zebra" not in str(env.observe("solver_0"))


def test_scripted_players_beat_guessing():
    from legos_envs.policies import make_policy

    def mean(name):
        env = Dataset()
        episodes = [asyncio.run(legos_envs.play(env, make_policy(name, env), seed)) for seed in range(150)]
        return sum(e.returns["solver_0"] for e in episodes) / 150

    assert mean("scripted:oracle") == pytest.approx(1.1) and 0.05 < mean("random") < 0.5


@pytest.mark.slow
def test_variants_pass_every_check():
    for arguments in ({"source": str(DATA / "gsm8k.jsonl"), "answer_pattern": "####"}, {"level": 3, "order": "random"}):
        check_env("Dataset-v0", episodes=30, skip=("seed.process",), raise_on_failure=True, **arguments)


# --- GSM8K -----------------------------------------------------------------------------------------------------------


def test_gsm8k_is_generated_by_default_and_reads_its_fields():
    assert isinstance(GSM8K().problems, sources.Words)
    env = GSM8K(DATA / "gsm8k.jsonl")
    assert [env.problems[i].answer for i in range(3)] == ["18", "3", "70000"]
    assert play(env, "She makes $18 a day.\n#### $18.00", index=0).returns["solver_0"] == pytest.approx(1.1)
    with pytest.raises(ValueError, match="has no answer after '####'"):
        GSM8K(ROWS)
    assert GSM8K(ROWS, answer_pattern=None).problems[0].answer == "2"


def test_gsm8k_from_hugging_face(monkeypatch):
    asked = []

    def hub(*where):
        asked.append(where)
        return [{"question": "1+1?", "answer": "1+1=<<1+1=2>>2\n#### 2"}]

    monkeypatch.setattr(raw_rows, "_hub", hub)
    monkeypatch.setattr(given_items, "_opened", {})
    assert GSM8K("hf", split="test").problems[0] == Problem("1+1?", "2") and GSM8K("hf").name == "GSM8K-v0"
    assert asked == [("openai/gsm8k", "main", "test"), ("openai/gsm8k", "main", "train")]
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        GSM8K("hf", split="validation")


@pytest.mark.skipif(not (SHARED / "gsm8k").exists(), reason="the data are not here")
def test_every_gold_answer_of_gsm8k_is_right_and_its_neighbour_wrong(monkeypatch):
    monkeypatch.setattr(answers.formulas, "same", lambda *_: pytest.fail("numbers need no worker"))
    env = GSM8K(SHARED / "gsm8k" / "test.jsonl", order="sequential")
    assert len(env.problems) == 1319
    lines = (SHARED / "gsm8k" / "test.jsonl").read_text("utf-8").splitlines()
    golds = [json.loads(line)["answer"] for line in lines]
    for i in range(1319):
        gold = golds[i]
        truth = env.problems[i].answer
        assert answers.same_answer(answers.final_answer(gold), truth), gold
        assert not answers.same_answer(str(int(truth.replace(",", "")) + 1), truth)
    for seed in range(0, 1319, 50):
        assert play(env, golds[seed], seed).info["correct"]


def test_math500_fields():
    env = Dataset(DATA / "math500.jsonl", question="problem", action_format="boxed")
    for i in range(5):
        truth = env.problems[i].answer
        assert play(env, f"\\boxed{{{truth}}}", index=i).returns["solver_0"] == pytest.approx(1.1)
