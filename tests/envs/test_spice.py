"""SPICE: corpora, questions that must have their answer in the document, and what it takes to be paid."""

import asyncio
import json
import math

import pytest

import legos_envs
from legos_envs.tasks import raw_rows
from legos_envs.tasks.problems import SPICE
from legos_envs.tasks.problems.corpus import SAMPLE, open_corpus, passages
from legos_envs.tasks.problems.spice import variance_reward
from legos_envs.testing import check_env

DOCUMENT = "Lima is the capital of Peru. It has about 10 million people and was founded in 1535 by Francisco Pizarro."
SAID = {"challenger": "Question: What is the capital of Peru?\nAnswer: Lima", "reasoner": "Answer: Lima"}


def play(env, options=None, seed=0, **said):
    named = SAID | said
    policy = lambda d: named.get(d.agent.replace("/", "_"), named[d.role])  # noqa: E731
    return asyncio.run(legos_envs.play(env, policy, seed, {"document": DOCUMENT} if options is None else options))


# --- corpora ---------------------------------------------------------------------------------------------------------


def test_the_sample_has_titles_and_sources():
    rows = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    assert len(rows) >= 20 and len({row["title"] for row in rows}) == len(rows)
    for row in rows:
        old = row["source"].rpartition(", ")[2]
        assert row["source"] == "written for this project" or int(old) < 1900
        assert 40 <= len(row["text"].split()) <= 150
    assert [document.title for document in open_corpus()] == [row["title"] for row in rows]


def test_files_and_directories(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("One.\n\nTwo.\n\n\n\nThree é.", "utf-8")
    (tmp_path / "sub" / "a.jsonl").write_text('{"text": "Four.", "title": "T"}\n\n{"text": "Five."}\n')
    (tmp_path / "notes.md").write_text("not read")
    assert open_corpus(tmp_path) == (("b", "One.\n\nTwo.\n\nThree é."), ("T", "Four."), ("a", "Five."))
    assert open_corpus([tmp_path / "b.txt"], 12) == (("b", "One.\n\nTwo."), ("b", "Three é."))
    assert [d.text for d in open_corpus(str(tmp_path / "sub" / "a.jsonl"))] == ["Four.", "Five."]


def test_rows_of_any_source(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    rows = [{"body": "Lima is in Peru.", "name": "Lima"}, {"body": "Rome is in Italy.", "name": None}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    fields = {"text": "body", "title": "name"}
    for source in (tmp_path / "rows.parquet", str(tmp_path / "rows.json")):
        assert SPICE(source, fields=fields).documents == (("Lima", "Lima is in Peru."), ("rows", "Rome is in Italy."))
    assert SPICE(rows, fields=fields).documents[1] == ("document", "Rome is in Italy.")
    monkeypatch.setattr(raw_rows, "_hub", lambda name, config, split: rows if split == "test" else [])
    hub = SPICE("hf:some/name", fields=fields, split="test")  # its own split: no fifth of it is held out
    assert hub.documents == (("Lima", "Lima is in Peru."), ("some/name", "Rome is in Italy."))
    with pytest.raises(ValueError, match=r"2 of 2 rows do not fit: .*field 'text' is missing.*use `fields` for"):
        SPICE(rows)
    with pytest.warns(UserWarning, match="skipped: 1 of 3 rows do not fit: source, row 2"):
        assert len(SPICE([*rows, {"body": ""}], fields=fields, bad_rows="skip").documents) == 2


def test_each_passage_of_a_list_is_in_one_split():
    sentence = "Lamp {} of {} stands in the old town on the hill behind it.\n"
    rows = [{"text": "\n\n".join(sentence.format(row, part) for part in range(3))} for row in range(40)]
    whole, *parts = (SPICE(rows, split=split, max_chars=100).documents for split in ("all", "train", "test"))
    assert sorted(parts[0] + parts[1]) == sorted(whole) and 0.1 < len(parts[1]) / len(whole) < 0.3


def test_passages_keep_every_word():
    text = "alpha beta gamma delta\n\n" + "x" * 25 + " omega"
    assert passages(text, 10) == ["alpha beta", "gamma", "delta", "x" * 10, "x" * 10, "xxxxx", "omega"] or "".join(
        "".join(passages(text, 10)).split()
    ) == "".join(text.split())
    assert all(len(piece) <= 10 for piece in passages(text, 10))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x", "a file must end in .txt, .jsonl, .json, .parquet; got"),
        ("a.txt", b"\xff\xfe\xff", "not valid UTF-8"),
        ("a.txt", b"  \n", "holds no text"),
        ("a.jsonl", b'{"text": "x"}\n{', "a.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"body": "x"}', "a.jsonl, line 1: field 'text' is missing; the row has 'body'"),
        ("a.jsonl", b"[1]", "line 1: a row must be an object with fields; got list"),
    ],
)
def test_bad_corpora(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        SPICE(tmp_path / name)


def test_a_corpus_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or directory"):
        SPICE(tmp_path / "none")
    with pytest.raises(ValueError, match="source must be 'facts', 'sample', a path or a list of"):
        SPICE(7)


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(5))
def test_rewards(k):
    said = {f"question_0_reasoner_{i}": "Answer: Lima" if i < k else "Answer: Quito" for i in range(4)}
    episode = play(SPICE(), **said)
    v = k / 4 * (1 - k / 4)
    assert episode.returns["challenger_0"] == pytest.approx(math.exp(-((v - 0.25) ** 2) / 0.02))
    assert [episode.returns[f"question_0/reasoner_{i}"] for i in range(4)] == [float(i < k) for i in range(4)]
    assert episode.outcome == "played" and episode.info["solve_rate"] == k / 4 and episode.info["truth"] == "Lima"


def test_variance_reward_by_hand():
    assert variance_reward(0.5) == 1
    assert variance_reward(0) == variance_reward(1) == pytest.approx(math.exp(-3.125))
    assert variance_reward(0.25) == pytest.approx(0.82258, abs=1e-5)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("Question: Who rules Peru?\nAnswer: Nobody", "unsupported"),
        ("Question: How many?\nAnswer: 1", "unsupported"),
        ("Question: Is Lima big?\nAnswer: Lima", "leaked"),
        ("Question: Is it the year 1535.0?\nAnswer: 1535", "leaked"),
        ("Question: Is it ?!\nAnswer: ...", "unsupported"),
    ],
)
def test_bad_questions_cost_and_nobody_is_asked(said, outcome):
    episode = play(SPICE(), challenger=said)
    assert episode.outcome == outcome and episode.turns == 1
    assert episode.returns == {"challenger_0": -0.1} | {f"question_0/reasoner_{i}": 0 for i in range(4)}
    assert play(SPICE(bad_question_reward=0), challenger=said).returns["challenger_0"] == 0


@pytest.mark.parametrize(
    "said", ["What?", "Question: x", "Question: " + "x" * 2001 + "\nAnswer: Lima", "Question: x\nAnswer: " + "y" * 201]
)
def test_an_unreadable_question_costs_the_challenger_alone(said):
    episode = play(SPICE(invalid_retries=0), challenger=said)
    assert episode.outcome == "invalid_question" and episode.turns == 1
    assert episode.returns == {"challenger_0": -1} | {f"question_0/reasoner_{i}": 0 for i in range(4)}


def test_a_silent_reasoner_pays_alone():
    episode = play(SPICE(num_reasoners=2), question_0_reasoner_1="<think>Lima")
    assert episode.returns == {"challenger_0": 1, "question_0/reasoner_0": 1, "question_0/reasoner_1": -1}


@pytest.mark.parametrize("said", ["Answer: the Lima.", "\\boxed{LIMA}", "#### Lima"])
def test_words_are_compared_without_case_and_articles(said):
    assert play(SPICE(), reasoner=said).returns["question_0/reasoner_0"] == 1


def test_numbers_are_compared_as_numbers():
    asked = {"challenger": "Question: When was Lima founded?\nAnswer: 1535", "reasoner": "In the year 1535"}
    assert play(SPICE(), **asked).returns["question_0/reasoner_0"] == 1


@pytest.mark.parametrize("memory", ["state", "chat"])
def test_reasoners_see_the_question_alone_until_the_end(memory):
    env = SPICE(memory=memory)
    env.reset(seed=0, options={"document": DOCUMENT})
    assert DOCUMENT in env.observe("challenger_0")["messages"][0]["content"]
    env.step(f"<think>hm</think>PLAN about Pizarro.\n{SAID['challenger']}")
    for agent in env.possible_agents[1:]:
        shown = json.dumps([env.observe(agent), env.infos[agent]])
        assert "What is the capital of Peru?" in shown
        assert not any(word in shown for word in ("Lima", "Pizarro", "PLAN", "million", "document"))
    for _ in range(4):
        assert "document" not in env.infos[env.agent_selection]
        env.step("Answer: Quito")
    for agent in env.possible_agents:
        assert env.infos[agent]["document"] == DOCUMENT and env.infos[agent]["truth"] == "Lima"
    assert all("Pizarro" not in str(env.observe(agent)) for agent in env.possible_agents[1:])


def test_seeds_take_every_passage_once():
    env = SPICE("sample")
    shown = []
    for seed in range(24):
        env.reset(seed=seed)
        shown.append(env.observe("challenger_0")["messages"][0]["content"])
    assert len(set(shown)) == 24
    env.reset(seed=5, options={"index": 0})
    assert "Document: Tides\nThe sea" in env.observe("challenger_0")["messages"][0]["content"]


def test_bad_arguments():
    for arguments, message in (
        ({"num_reasoners": 0}, "num_reasoners must be"),
        ({"bad_question_reward": math.inf}, "bad_question_reward must be a finite"),
        ({"order": "x"}, "order must be one of"),
        ({"max_chars": 10}, "max_chars must be a whole number of at least 100"),
    ):
        with pytest.raises(ValueError, match=message):
            SPICE(**arguments)
    for options, message in (({"document": ""}, "option document must be text"), ({"index": 24}, "option index")):
        with pytest.raises(ValueError, match=message):
            SPICE("sample").reset(seed=0, options=options)


@pytest.mark.slow
def test_variants_pass_every_check():
    for arguments in (
        {"num_reasoners": 1, "order": "random"},
        {"source": "sample", "max_chars": 300, "bad_question_reward": 0},
    ):
        check_env("SPICE-v0", episodes=30, skip=("seed.process",), raise_on_failure=True, **arguments)
