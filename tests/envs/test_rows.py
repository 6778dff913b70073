"""Items from a source: every kind of file, fields by name, bad rows by number, a split that holds out a fifth."""

import importlib.util
import json
from pathlib import Path

import pytest

from legos_envs.tasks import raw_rows
from legos_envs.tasks.rows import open_rows
from legos_envs.tasks.splits import part_of

SHARED = Path(__file__).parents[3] / "shared" / "data"
ROWS = [{"text": f"Topic {n}", "pro": "yes", "weight": n} for n in range(9)]
READ = tuple([{"topic": row["text"], "pro": "yes"} for row in ROWS])
NAMES = {"topic": "topic", "pro": "pro"}
FIELDS = {"topic": "text"}


def write(path, rows):
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(lines if path.suffix == ".jsonl" else json.dumps(rows))
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_every_kind_of_file(tmp_path, name):
    file = write(tmp_path / name, ROWS)
    assert open_rows(file, NAMES, FIELDS) == open_rows(str(file), NAMES, FIELDS) == READ
    assert open_rows(ROWS, NAMES, FIELDS) == READ


def test_a_hugging_face_name(monkeypatch):
    asked = []
    monkeypatch.setattr(raw_rows, "_hub", lambda *where: asked.append(where) or ROWS)
    assert open_rows("hf:some/name", NAMES, FIELDS, split="validation", config="main") == READ
    assert asked == [("some/name", "main", "validation")]  # no fifth of it is held out: it has splits of its own


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs the extra datasets")
def test_a_hugging_face_data_set_on_disk(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "small").mkdir()
    write(tmp_path / "small" / "train.jsonl", ROWS[:4])
    write(tmp_path / "small" / "test.jsonl", ROWS[4:])
    name = f"hf:{tmp_path / 'small'}"
    assert open_rows(name, NAMES, FIELDS, split="test") == READ[4:]
    with pytest.warns(UserWarning, match="split 'all' joins all splits of 'hf:.*the test split included"):
        assert {row["topic"] for row in open_rows(name, NAMES, FIELDS)} == {row["topic"] for row in READ}


@pytest.mark.skipif(not SHARED.exists(), reason="needs the shared data sets")
def test_real_files():
    rows = open_rows(SHARED / "gsm8k" / "test.jsonl", {"prompt": "question", "answer": "answer"})
    assert len(rows) == 1319 and rows[0]["prompt"].startswith("Janet") and rows[0]["answer"].endswith("#### 18")
    rows = open_rows(SHARED / "math500" / "test.jsonl", {"prompt": "problem"}, split="test")
    assert 70 < len(rows) < 130 and all(part_of(row["prompt"]) == "test" for row in rows)


def test_texts_where_one_field_is_enough():
    assert open_rows(["a", "b"], {"prompt": "prompt"}) == ({"prompt": "a"}, {"prompt": "b"})
    assert open_rows(["a"], {"prompt": "prompt", "hint": "hint"}, optional=["hint"]) == ({"prompt": "a"},)
    with pytest.raises(ValueError, match=r"source, row 0: a row must be an object with fields; got str"):
        open_rows(["a"], NAMES)


def test_fields_may_be_left_out_or_hold_values():
    rows = [{"prompt": "a", "tests": ["x"]}, {"prompt": "b", "tests": [], "hint": None}]
    names = {"prompt": "prompt", "tests": "tests", "hint": "hint"}
    assert open_rows(rows, names, optional=["hint"], values=["tests"]) == (
        {"prompt": "a", "tests": ["x"]},
        {"prompt": "b", "tests": []},
    )
    with pytest.raises(ValueError, match="row 0: field 'tests' is missing; the row has 'prompt'"):
        open_rows([{"prompt": "a"}], names, optional=["hint"], values=["tests"])


def test_bad_rows_are_refused_by_number_or_skipped(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"topic": "a", "pro": "x"}\n\n{"topic": "", "pro": "x"}\n{broken\n[1]\n{"topic": "b", "pro": 7}\n')
    with pytest.raises(ValueError, match=r"^3 of 5 rows do not fit: .*line 3: field 'topic' must be text") as refused:
        open_rows(file, NAMES)
    assert "line 4: not valid JSON" in str(refused.value) and "line 5: a row must be an object" in str(refused.value)
    assert str(refused.value).endswith("skip them with bad_rows='skip'")
    with pytest.warns(UserWarning, match=r"skipped: 3 of 5 rows do not fit"):
        kept = open_rows(file, NAMES, bad_rows="skip")
    assert kept == ({"topic": "a", "pro": "x"}, {"topic": "b", "pro": "7"})


def test_half_a_character_and_no_number_are_bad_rows(tmp_path):
    file = tmp_path / "rows.jsonl"  # JSON may hold both; neither can be a question or a true answer
    file.write_text('{"question": "half \\ud83d", "answer": 1}\n{"question": "a", "answer": NaN}\n')
    names = {"question": "question", "answer": "answer"}
    with pytest.raises(ValueError, match=r"line 1: field .question. has half a character at position 5; .*got nan"):
        open_rows(file, names, split="train")
    file.write_text(f'{file.read_text()}{{"question": "b", "answer": 2}}\n')
    with pytest.warns(UserWarning, match="2 of 3 rows do not fit"):
        assert open_rows(file, names, bad_rows="skip") == ({"question": "b", "answer": "2"},)


def test_numbers_and_dates_that_python_cannot_hold_are_text_or_bad_rows(tmp_path):
    huge = 10**400  # larger than any float
    for number, text in ((0.00005, "0.00005"), (1e16, "10000000000000000"), (18.0, "18.0"), (3, "3")):
        assert open_rows([{"topic": number}], {"topic": "topic"}) == ({"topic": text},)
    assert open_rows([{"topic": huge}], {"topic": "topic"}) == ({"topic": str(huge)},)
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    dates = pyarrow.array([0, 10**15], pyarrow.timestamp("ms"))
    parquet.write_table(pyarrow.table({"topic": ["a", "b"], "date": dates}), file)
    with pytest.warns(UserWarning, match=r"1 of 2 rows do not fit: .*rows.parquet, row 1: "):
        kept = open_rows(file, {"topic": "topic", "date": "date"}, values=["date"], bad_rows="skip")
    assert [item["topic"] for item in kept] == ["a"]


def test_what_makes_an_item_may_refuse_a_row():
    def make(row):
        if row["topic"] == "Topic 3":
            raise ValueError("no such topic")
        return row["topic"]

    with pytest.raises(ValueError, match="1 of 9 rows do not fit: source, row 3: no such topic"):
        open_rows(ROWS, NAMES, FIELDS, make=make)
    with pytest.warns(UserWarning):
        assert len(open_rows(ROWS, NAMES, FIELDS, make=make, bad_rows="skip")) == 8


def test_the_split_holds_out_by_the_first_field():
    names = {"topic": "text"}
    train, test = (open_rows(ROWS, names, split=split) for split in ("train", "test"))
    assert len(train) + len(test) == 9 and all(part_of(row["topic"]) == "test" for row in test) and train and test
    with pytest.raises(ValueError, match="split 'test' holds none of the 1 items"):
        open_rows([row for row in ROWS if part_of(row["text"]) == "train"][:1], names, split="test")


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (
            ROWS,
            {},
            r"9 of 9 rows do not fit: .*'topic' is missing; the row has 'text'.* use `fields` for other names",
        ),
        (ROWS, {"fields": {"topik": "text"}}, r"the task's field 'topik' is unknown. Did you mean 'topic'\?"),
        (ROWS, {"fields": "text"}, r"fields must be a mapping such as \{'topic': 'topic', 'pro': 'pro'\}; got 'text'"),
        (ROWS, {"fields": FIELDS, "split": "tset"}, r"split must be one of .*did you mean 'test'"),
        (ROWS, {"fields": FIELDS, "bad_rows": "drop"}, "bad_rows must be one of 'refuse', 'skip'; got 'drop'"),
        ([], {}, "source has no rows"),
        ("rows.csv", {"built_in": ("topics",)}, r"source must be 'topics', a path ending in .*; got 'rows.csv'"),
        (7, {}, "source must be a path .*; got 7"),
    ],
)
def test_bad_input_is_named(source, arguments, message):
    with pytest.raises(ValueError, match=message):
        open_rows(source, NAMES, **arguments)


def test_a_file_of_nearly_that_name_is_offered(tmp_path):
    (tmp_path / "topics.jsonl").write_text('{"topic": "x"}\n')
    with pytest.raises(FileNotFoundError, match=r"did you mean '.*/topics\.jsonl'\?"):
        open_rows(tmp_path / "topic.jsonl", NAMES)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_rows(tmp_path / "rows.jsonl", NAMES)
