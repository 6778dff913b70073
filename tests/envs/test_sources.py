"""Where problems come from: generated ones, files, rows in memory, data sets; what is wrong with a source is said."""

import asyncio
import importlib.util
import json
import subprocess
import sys

import pytest

import legos_envs
from legos_envs import Rubric
from legos_envs.tasks import given_items, raw_rows
from legos_envs.tasks.problems import Dataset
from legos_envs.tasks.problems.gsm8k import GSM8K
from legos_envs.tasks.problems.sources import Problem, open_source
from legos_envs.tasks.problems.word_problems import word_problem
from legos_envs.tasks.rows import open_rows

ROWS = [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in range(1, 8)]
has_datasets = pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the extra datasets")
has_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the extra datasets")


def play(env, said, seed=0, **options):
    return asyncio.run(legos_envs.play(env, lambda _: said, seed, options))


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
