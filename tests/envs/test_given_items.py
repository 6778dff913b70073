"""Items of the user's own: every task of argument, contests and working together takes them from files and lists."""

import asyncio
import json
from pathlib import Path

import pytest

import legos_envs
from legos_envs.policies import make_policy

GSM8K = Path(__file__).with_name("data") / "gsm8k.jsonl"
QUESTIONS = [json.loads(line)["question"] for line in GSM8K.read_text().splitlines()]
THEOREMS = [{"theorem": "p, p -> q |- q"}, {"theorem": "a & b |- b"}, {"theorem": "~~r |- r"}]
LISTS = [
    {"task": "Reverse it.", "list": [1, 2, 3], "answer": [3, 2, 1]},
    {"task": "Keep what is even.", "list": [1, 2, 4], "answer": [2, 4]},
    {"task": "Leave it.", "list": [7], "answer": [7]},
]
RESPONSES = [
    {"principle": "It is brief.", "response": "Yes.", "violates": False},
    {"principle": "It is kind.", "response": "Get lost.", "violates": True},
    {"principle": "It is true.", "response": "The moon is far away.", "violates": None},
]
CALLED = [
    ("Debate-v0", {}, "topic"),
    ("HeadToHead-v0", {}, "prompt"),
    ("EloArena-v0", {}, "prompt"),
    ("Tournament-v0", {}, "topic"),
    ("RefineLoop-v0", {"domain": "open"}, "task"),
    ("RefineLoop-v0", {"domain": "open", "rounds": 0}, "task"),
    ("Amplification-v0", {"rating": "person"}, "question"),
    ("Amplification-v0", {}, "question"),
]
OTHERS = [
    ("Debate-v0", {"about": "principle"}, RESPONSES, "response"),
    ("ProofVerification-v0", {}, THEOREMS, None),
    ("PlanExecute-v0", {}, LISTS, "task"),
]


def first_prompts(env, seeds):
    for seed in range(seeds):
        env.reset(seed=seed)
        yield env.observe(env.agent_selection)["messages"][0]["content"]


def play(env, seed=0):
    return asyncio.run(legos_envs.play(env, make_policy("random", env), seed))


def written(rows, suffix, folder):
    """The rows as a source of each kind."""
    path = folder / f"rows{suffix}"
    if suffix == "list":
        return rows
    if suffix == ".parquet":
        parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").Table
        parquet.write_table(table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(("id", "kwargs", "field"), CALLED)
def test_a_real_data_set_under_names_of_its_own(id, kwargs, field):
    """GSM8K's questions as motions, prompts, tasks and questions; fields of a match are named in `match_kwargs`."""
    fields = {field: "question"}
    named = (
        {"match_kwargs": {"fields": fields}}
        if id in ("HeadToHead-v0", "EloArena-v0", "Tournament-v0")
        else {"fields": fields}
    )
    env = legos_envs.make(id, source=str(GSM8K), **named, **kwargs)
    prompts = list(first_prompts(env, len(QUESTIONS)))
    assert {question for question in QUESTIONS if any(question in prompt for prompt in prompts)} > set(QUESTIONS[:1])
    assert all(any(question in prompt for question in QUESTIONS) for prompt in prompts)
    assert play(env).turns > 0


@pytest.mark.parametrize("suffix", [".jsonl", ".json", pytest.param(".parquet", marks=pytest.mark.slow), "list"])
@pytest.mark.parametrize(("id", "kwargs", "rows", "field"), OTHERS)
def test_rows_from_every_kind_of_source(id, kwargs, rows, field, suffix, tmp_path):
    env = legos_envs.make(id, source=written(rows, suffix, tmp_path), **kwargs)
    prompts = list(first_prompts(env, len(rows)))
    assert len(set(prompts)) == len(rows)  # the first seeds take every item once
    if field:
        assert all(any(row[field] in prompt for prompt in prompts) for row in rows)
    assert play(env).turns > 0


PROBLEMS = [{"q": f"What is {n} and {n}?", "a": f"Twice {n}\n#### {2 * n}"} for n in range(1, 5)]
PROBLEM_TASKS = ["Dataset-v0", "GSM8K-v0", "EnsembleVote-v0", "SelfDistillation-v0"]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", pytest.param(".parquet", marks=pytest.mark.slow), "list"])
@pytest.mark.parametrize("id", PROBLEM_TASKS)
def test_problems_from_every_kind_of_source(id, suffix, tmp_path):
    source = written(PROBLEMS, suffix, tmp_path)
    fields = {"fields": {"question": "q", "answer": "a"}, "answer_pattern": "####"}
    env = legos_envs.make(id, source=source, **fields)
    prompts = list(first_prompts(env, 4))
    assert all(sum(row["q"] in prompt for prompt in prompts) == 1 for row in PROBLEMS)
    assert {play(env, seed).info["truth"] for seed in range(4)} == {"2", "4", "6", "8"}
    same = legos_envs.make(id, source=source, question="q", answer="a", answer_pattern="####")
    assert list(first_prompts(same, 4)) == prompts


@pytest.mark.parametrize("id", PROBLEM_TASKS)
def test_a_bad_problem_is_named_before_anything_is_played(id, tmp_path):
    rows = [{"question": "1+1?", "answer": "#### 2"}, {"question": "2+2?", "answer": None}]
    source = written([*rows, {"question": "3+3?", "answer": "#### 6"}], ".jsonl", tmp_path)
    with pytest.raises(ValueError, match=r"1 of 3 rows do not fit: .*rows\.jsonl, line 2: field 'answer' must be text"):
        legos_envs.make(id, source=source, answer_pattern="####")
    with pytest.warns(UserWarning, match="skipped: 1 of 3 rows"):
        env = legos_envs.make(id, source=source, answer_pattern="####", bad_rows="skip")
    assert {play(env, seed).info["truth"] for seed in range(2)} == {"2", "6"}


def test_answers_come_from_the_rows():
    env = legos_envs.make("Amplification-v0", source=str(GSM8K))
    truths = {play(env, seed).info["truth"] for seed in range(len(QUESTIONS))}
    assert truths == {
        json.loads(line)["answer"].rpartition("#### ")[2].replace(",", "") for line in GSM8K.read_text().splitlines()
    }
    lists = legos_envs.make("PlanExecute-v0", source=LISTS[:1])
    lists.reset(seed=0)
    for said in ("Turn it round.", "[1, 2, 3]", "It must be 3, 2, 1.", "[3, 2, 1]"):
        lists.step(said)
    assert lists.infos["critic_0"]["final"] == 1 and lists.rewards["critic_0"] > 1
    cases = legos_envs.make("Debate-v0", about="principle", source=RESPONSES)
    assert {play(cases, seed).info.get("violates") for seed in range(3)} == {True, False, None}


@pytest.mark.quick("Apollo*", "Route*", "12")  # the others load a library for formulas
@pytest.mark.parametrize("answer", ["Apollo 11", "x^2 + 1", "\\frac{3}{4}", "Route 66, in 1926", "12"])
def test_a_true_answer_is_not_only_the_last_number_in_it(answer):
    for given, outcome in ((answer, "right"), ("2", "wrong"), ("11", "wrong"), ("4", "wrong"), ("1", "wrong")):
        env = legos_envs.make("Amplification-v0", source=[{"question": "Which?", "answer": answer}])
        env.reset(seed=0)
        env.step(f"[answer: {given}]")
        assert (env.infos["assistant_0"]["truth"], env.infos["assistant_0"]["outcome"]) == (answer, outcome)


def test_tasks_of_one_text_are_split_by_their_lists():
    rows = [{"task": "Reverse it.", "list": [n, 3], "answer": [3, n]} for n in range(50)]
    parts = [legos_envs.make("PlanExecute-v0", source=rows, split=split).unwrapped.items for split in ("train", "test")]
    assert sum(map(len, parts)) == 50 and 3 < len(parts[1]) < 20


@pytest.mark.parametrize("letters", ["ps", "qt", "ru", "sv", "tw", "up", "vq", "wr"])
def test_a_theorem_is_in_one_split_however_it_is_written(letters):
    a, b = letters
    held_out = []
    for text in (f"{a} -> {b}, {a} |- {b}", f"{a}, {a}->{b} |- {b}", f"{a},({a} -> {b}) |- {b}"):
        try:
            legos_envs.make("ProofVerification-v0", source=[text], split="test")
            held_out.append(True)
        except ValueError:
            held_out.append(False)
    assert len(set(held_out)) == 1


def test_rows_with_criteria_that_are_no_list_of_texts_are_bad_rows():
    rows = [{"task": "Greet me."}, {"task": "Leave.", "criteria": 5}, {"task": "Stay.", "criteria": {"short": 1}}]
    with pytest.raises(ValueError, match=r"row 1: criteria must be a list; got 5"):
        legos_envs.make("RefineLoop-v0", domain="open", source=rows)
    with pytest.warns(UserWarning, match="2 of 3 rows do not fit"):
        env = legos_envs.make("RefineLoop-v0", domain="open", source=rows, bad_rows="skip")
    assert len(env.unwrapped.items) == 1


def test_rows_may_bring_criteria_of_their_own():
    rows = [{"task": "Greet me.", "criteria": ["It is short.", "It is kind."]}]
    env = legos_envs.make("RefineLoop-v0", domain="open", rounds=0, source=rows, criteria="It is long.")
    episode = play(env)
    asked = [turn.observation[0]["content"] for turn in episode.trajectories["judge_0"].turns]
    assert len(asked) == 2 and "It is short." in asked[0] and "It is kind." in asked[1]


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("Debate-v0", {"source": [{"topic": "A."}, {"motion": "B."}]}, "row 1.*field 'topic'"),
        ("Debate-v0", {"source": "topics.jsonl"}, "there is no file 'topics.jsonl'"),
        ("Debate-v0", {"fields": {"topic": "motion"}}, "fields is for a source"),
        ("Debate-v0", {"config": "main"}, "config is for a source"),
        ("CodeGen-v0", {"fields": "mbpp"}, "fields is for a source; got 'mbpp' without one"),
        ("CodeGen-v0", {"source": "written", "config": "main"}, "config is for a source"),
        ("RedBlue-v0", {"variant": "patch", "fields": "mbpp"}, "fields is for a source"),
        ("SPICE-v0", {"fields": {"text": "body"}}, "fields is for a source"),
        ("Dataset-v0", {"config": "main"}, "config is for a source"),
        (
            "Dataset-v0",
            {"source": [{"question": "?", "answer": "1"}], "level": 3},
            "level is only for the generated problems",
        ),
        ("Debate-v0", {"source": ["A."], "fields": {"topik": "a"}}, "Did you mean 'topic'"),
        (
            "Debate-v0",
            {"about": "principle", "source": [{**RESPONSES[0], "violates": "no"}]},
            "violates must be true or false; got",
        ),
        ("ProofVerification-v0", {"source": ["p -> q, q |- p"]}, "row 0.*theorem must be true"),
        (
            "PlanExecute-v0",
            {"source": [{**LISTS[0], "list": "1, 2"}]},
            "row 0.*list must be a list of 1 to 100 whole num",
        ),
        ("PlanExecute-v0", {"source": [{**LISTS[0], "answer": []}]}, "row 0.*answer must be a list"),
        ("Amplification-v0", {"source": ["Why?"]}, "answer"),
        ("HeadToHead-v0", {"source": ["Why?"], "split": "tests"}, "did you mean 'test'"),
    ],
)
def test_what_does_not_fit_is_named(id, kwargs, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        legos_envs.make(id, **kwargs)


def test_rows_that_do_not_fit_can_be_skipped():
    rows = ["p |- q", "p & q |- p"]
    with pytest.warns(UserWarning, match=r"skipped: 1 of 2 rows do not fit: source, row 0"):
        env = legos_envs.make("ProofVerification-v0", source=rows, bad_rows="skip")
    assert len(set(first_prompts(env, 4))) <= 2


def test_a_file_is_read_once_while_it_is_unchanged(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"theorem": "p & q |- p"}\n')
    first = legos_envs.make("ProofVerification-v0", source=str(path)).unwrapped.items
    assert legos_envs.make("ProofVerification-v0", source=str(path)).unwrapped.items is first
    path.write_text('{"theorem": "p & q |- q"}\n{"theorem": "p & q |- p"}\n')
    assert len(legos_envs.make("ProofVerification-v0", source=str(path)).unwrapped.items) == 2
