"""One problem an episode: where problems come from, which one a seed gets, what is paid, what is told when."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import legos_envs
from legos_envs import Rubric, Unscored
from legos_envs.scoring import answers
from legos_envs.tasks import given_items, raw_rows
from legos_envs.tasks.problems import Dataset, sources
from legos_envs.tasks.problems.gsm8k import GSM8K
from legos_envs.tasks.problems.sources import Problem, open_source
from legos_envs.tasks.problems.word_problems import word_problem
from legos_envs.tasks.rows import open_rows
from legos_envs.testing import check_env

DATA = Path(__file__).with_name("data")
SHARED = Path(__file__).parents[3] / "shared" / "data"
ROWS = [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in range(1, 8)]
has_datasets = pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the extra datasets")
has_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the extra datasets")


def play(env, said, seed=0, **options):
    return asyncio.run(legos_envs.play(env, lambda _: said, seed, options))


# --- sources ---------------------------------------------------------------------------------------------------------


def test_words_are_the_generated_problems():
    problems = open_source("words", level=2, size=30)
    assert len(problems) == 30
    assert problems[4] == Problem(word_problem(4, 2).question, str(word_problem(4, 2).answer))


def test_a_file_of_lines_is_checked_when_it_is_opened(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = '{"question": "1+1?", "answer": 2}\n\n{"question": "2+2 é?", "answer": "4"}\n'
    file.write_text(rows + "{broken\n", "utf-8")
    with pytest.raises(ValueError, match=r"1 of 3 rows do not fit: .*rows\.jsonl, line 4: not valid JSON"):
        open_source(file)
    file.write_text(rows, "utf-8")
    problems = open_source(file)
    assert len(problems) == 2 and problems[1] == Problem("2+2 é?", "4") and problems[0].answer == "2"
    assert open_source(file) is problems  # hundreds of envs share what was read once
    assert open_source(file, answer=None)[0] == Problem("1+1?", None)
    file.write_text('{"question": "A longer one: 3+3?", "answer": 6}\n{"question": "4+4?", "answer": 8}\n')
    newer = open_source(file)  # not what was kept of the older file
    assert len(newer) == 2 and newer[1] == Problem("4+4?", "8")


def test_json_and_its_errors(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{"q": "1+1?", "a": 2.5}, {"q": "2+2?"}]))
    with pytest.warns(UserWarning, match=r"skipped: 1 of 2 rows do not fit"):
        problems = open_source(str(file), question="q", answer="a", bad_rows="skip")
    assert problems == (Problem("1+1?", "2.5"),)
    with pytest.raises(ValueError, match=r"rows\.json, row 1: field 'a' is missing; the row has 'q'"):
        open_source(str(file), question="q", answer="a")
    for text, message in (("{}", "must hold a list of objects; got dict"), ("[1]", "row 0: a row must be an object")):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_source(file)
    for text, message in (("[]", "has no rows"), ("[" * 100_000, "not valid JSON")):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_source(file)


def test_braces_in_a_path_do_no_harm(tmp_path):
    file = tmp_path / "{index} {x}.json"
    file.write_text('[{"question": "?", "answer": "1"}, {}]')
    with pytest.raises(ValueError, match=r"\{index\} \{x\}\.json, row 1: field 'question'.*no fields"):
        open_source(file)


@has_pyarrow
def test_parquet(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    file = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pylist([{**row, "more": "x" * 100} for row in ROWS]), file)
    problems = open_source(file)
    assert [problems[i] for i in range(len(problems))] == [Problem(r["question"], str(r["answer"])) for r in ROWS]
    assert raw_rows.raw_rows(file, ["question", "answer"]).rows.table.column_names == ["question", "answer"]
    with pytest.raises(ValueError, match=r"rows\.parquet, row 0: field 'q' is missing; the row has 'answer'"):
        open_source(file, question="q")
    with pytest.raises(ValueError, match="the row has 'question', 'answer', 'more'"):
        open_source(file, question="q", answer="a")


@has_datasets
@pytest.mark.slow
def test_a_hugging_face_data_set_in_memory():
    import datasets

    problems = open_source(datasets.Dataset.from_list(ROWS))
    assert len(problems) == 7 and problems[2] == Problem("What is 3 + 3?", "6")
    assert play(Dataset(datasets.Dataset.from_list(ROWS), order="sequential"), "Answer: 6", 2).info["correct"]


@has_datasets
@pytest.mark.slow
def test_a_hugging_face_data_set_by_name(tmp_path, monkeypatch):
    """A directory is a name that `load_dataset` finds without network."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    problems = open_source(f"hf:{tmp_path / 'small'}", split="test")
    assert len(problems) == 7 and problems[6].answer == "14"
    with pytest.raises(RuntimeError, match=r"cannot load the data set .*split 'train'.*or give a local file"):
        open_source(f"hf:{tmp_path / 'small'}", split="train")


def test_rows_in_memory_are_read_once_until_one_of_them_changes(monkeypatch):
    """A run makes hundreds of envs of the same rows."""
    read = []
    monkeypatch.setattr(given_items, "open_rows", lambda rows, *a, **k: read.append(1) or open_rows(rows, *a, **k))
    rows = [{"question": f"What is {n}?", "answer": n} for n in range(10)]
    first, second = (Dataset(source=rows, split="train") for _ in range(2))
    assert len(read) == 1 and first.problems is second.problems and first.drawn is second.drawn
    rows[3]["answer"] = 33
    assert Dataset(source=rows).problems[3].answer == "33" and len(read) == 2
    rows.append({"question": "More?", "answer": "yes"})
    assert len(Dataset(source=rows).problems) == 11
    assert Dataset(source=[{"question": "Other?", "answer": 1}] * 11).problems[0].question == "Other?"
    assert len(open_source(rows, answer="question")) == 11 and len(read) == 5, "other arguments"
    nested = [{"prompt": "p", "info": {"n": 1}}]
    for n in (1, 2):
        nested[0]["info"]["n"] = n
        found = given_items.given_items(
            nested, {"prompt": "prompt", "info": "info"}, None, "all", None, "refuse", dict, values=("info",)
        )
        assert found[0]["info"] == {"n": n}, "what is inside a value may change unseen, so such rows are not kept"


@has_datasets
def test_without_network_the_error_says_what_to_do(monkeypatch):
    import datasets

    def offline(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    monkeypatch.setattr(given_items, "_opened", {})
    with pytest.raises(
        RuntimeError, match=r"'openai/gsm8k' \(config 'main', split 'test'\): ConnectionError: no route.*local file"
    ):
        GSM8K("hf", split="test")


@has_datasets
@pytest.mark.parametrize(("resolved", "offline"), [(False, True), (True, False)])
def test_where_the_hub_has_no_address_it_is_not_asked_again_and_again(resolved, offline, monkeypatch):
    import datasets
    from huggingface_hub import constants

    def address(*where):
        if not resolved:
            raise OSError("Name or service not known")
        return [where]

    asked = []
    monkeypatch.setattr(raw_rows.socket, "getaddrinfo", address)
    monkeypatch.setattr(raw_rows.urllib.request, "getproxies", dict)
    for module in (datasets.config, constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        datasets,
        "load_dataset",
        lambda *_, **__: asked.append((datasets.config.HF_HUB_OFFLINE, constants.is_offline_mode())) or ROWS,
    )
    assert raw_rows._hub.__wrapped__("some/name", None, "train") == ROWS
    assert asked == [(offline, offline)]
    assert not datasets.config.HF_HUB_OFFLINE and not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(("source", "package"), [("hf:some/name", "datasets"), ("x.parquet", "pyarrow")])
def test_a_missing_package_is_named(source, package, monkeypatch, tmp_path):
    (tmp_path / "x.parquet").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"uv sync --extra datasets"):
        open_source(source)


def test_importing_and_playing_loads_none_of_the_extras():
    code = (
        "import sys, legos_envs\n"
        "for id in ('Dataset-v0', 'GSM8K-v0', 'ProposerSolver-v0', 'SPICE-v0', 'EnsembleVote-v0'):\n"
        "    legos_envs.make(id).reset(seed=0)\n"
        "print(sorted({'datasets', 'pyarrow', 'math_verify', 'sympy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": "word"}, ValueError, "source must be 'words', a path ending in .jsonl, .json, .parquet"),
        ({"source": "rows.csv"}, ValueError, "'hf:NAME' or a sequence of mappings; got 'rows.csv'"),
        ({"source": "nowhere.jsonl"}, FileNotFoundError, "there is no file 'nowhere.jsonl'"),
        ({"source": 7}, ValueError, "got 7"),
        ({"source": {"a": 1}}, ValueError, "a sequence of mappings; got {'a': 1}"),
        ({"source": []}, ValueError, "source has no rows"),
        (
            {"source": ROWS, "question": "q"},
            ValueError,
            "source, row 0: field 'q' is missing; the row has 'question', 'answer'",
        ),
        (
            {"source": [{"question": "x", "answer": None}]},
            ValueError,
            "field 'answer' must be text or a number; got None",
        ),
        ({"source": [{"question": "x", "answer": True}]}, ValueError, "got True"),
        ({"source": ROWS, "answer_pattern": "####"}, ValueError, "field 'answer' has no answer after '####'"),
        ({"source": ROWS, "answer": None}, ValueError, "answer must be text"),
        ({"source": ROWS, "fields": "q"}, ValueError, "fields must be a mapping such as"),
        ({"source": ROWS, "fields": {"questoin": "q"}}, ValueError, "'questoin' is unknown. Did you mean 'question'"),
        ({"source": ROWS, "question": "q", "fields": {"question": "p"}}, ValueError, "give either question or fields"),
        ({"source": ROWS, "bad_rows": "drop"}, ValueError, "bad_rows must be one of 'refuse', 'skip'; got 'drop'"),
        ({"fields": {"question": "q"}}, ValueError, "fields is for a source"),
        ({"source": None}, ValueError, "source must be 'words'.*got None"),
        ({"source": "hf:"}, ValueError, "source must be text"),
        ({"order": "shuffled"}, ValueError, "order must be one of 'seed', 'sequential', 'random'"),
        ({"level": 4}, ValueError, "level must be one of 0, 1, 2, 3"),
        ({"size": 0}, ValueError, "size must be a whole number from 1 to 1000000000"),
        ({"prompt": "Solve it."}, ValueError, "prompt must contain {question}"),
        ({"weights": {"corect": 1}}, ValueError, "weight 'corect' is unknown. Did you mean 'correct'"),
        ({"weights": {"format": float("nan")}}, ValueError, "weight format must be a finite number"),
        ({"weights": {}, "rubric": Rubric([len])}, ValueError, "give either weights or rubric"),
        ({"rubric": len}, ValueError, "rubric must be a legos_envs.Rubric"),
        ({"max_chars": 0}, ValueError, "max_chars must be a whole number of at least 1"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Dataset(**arguments)


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
