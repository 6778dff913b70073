"""The artifact store: duplicates, sampling, gates, ages, capacity, dumps, threads, crashes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest

from legos_train import ArtifactStore
from legos_train.arena.artifact import LEARNABILITY, learnability


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def numbered(store: ArtifactStore, rates: list[float | None], **kwargs) -> list[int]:
    """One artifact for each pass rate (of 10 attempts; None: never tried); their ids."""
    ids = []
    for i, rate in enumerate(rates):
        number = store.add({"i": i}, **kwargs)
        assert number is not None
        if rate is not None:
            store.record(number, rate * 10, 10, step=1)
        ids.append(number)
    return ids


def drawn(store: ArtifactStore, n: int = 1000, seed: int = 0, **kwargs) -> Counter:
    return Counter(a.id for a in store.sample(n, rng(seed), replace=True, **kwargs))


@pytest.fixture
def store():
    with ArtifactStore() as made:
        yield made


def test_an_artifact_comes_back_whole(store):
    content = {"problem": "3 + 4 = ?\n", "answer": "7", "parts": [1, 2.5, None, {"é": "\ud800"}]}
    number = store.add(content, pool="sums", weight=2.5, step=7, meta={"by": "proposer_0"})
    found = store[number]
    assert (found.content, found.meta, found.pool, found.weight, found.step) == (
        content, {"by": "proposer_0"}, "sums", 2.5, 7,
    )  # fmt: skip
    assert (found.pass_rate, found.last, found.level, found.learnability) == (None, None, "unseen", 0.25)
    assert list(store) == [found] and len(store) == store.count("sums") == 1
    assert store.find(found.key, "sums") == found and store.find(found.key) is None


def test_duplicates(store):
    assert store.add({"a": 1, "b": 2}) == 1
    assert store.add({"b": 2, "a": 1}) is None  # the order of keys is not a difference
    assert store.add({"a": 1, "b": 2}, pool="other") == 2
    assert store.add({"a": 1, "b": 2}, key="x") == 3
    assert store.add({"anything": 0}, key="x") is None
    assert [a.id for a in store] == [1, 2, 3]


def test_pass_rates_add_up(store):
    (number,) = numbered(store, [None])
    store.record(number, 3, 8, step=4)
    store.record(number, 1, 8, step=6)
    found = store[number]
    assert (found.successes, found.attempts, found.pass_rate, found.last) == (4, 16, 0.25, 6)


def test_decay_makes_pass_rates_follow():
    with ArtifactStore(decay=0.5) as store:
        (number,) = numbered(store, [0.0])
        store.record(number, 10, 10, step=2)
        assert store[number].pass_rate == pytest.approx(10 / 15)


def test_sampling_is_a_function_of_content_and_generator(store):
    numbered(store, [None, 0.1, 0.5, 0.9] * 5)
    for options in ({}, {"replace": True}, {"weighted": False}, {"learnable": True}, {"gate": (0.2, 0.8)}):
        first, second = rng(3), rng(3)
        assert store.sample(6, first, **options) == store.sample(6, second, **options)
        assert first.bit_generator.state == second.bit_generator.state
    assert store.sample(6, rng(3)) != store.sample(6, rng(4))


def test_weights_are_odds(store):
    for i, weight in enumerate((1.0, 3.0, 0.0)):
        store.add({"i": i}, weight=weight)
    counts = drawn(store, 4000)
    assert counts[3] == 0 and counts[2] / counts[1] == pytest.approx(3.0, rel=0.15)
    assert set(drawn(store, weighted=False)) == {1, 2, 3}


def test_without_replacement_nothing_comes_twice(store):
    ids = numbered(store, [None] * 5)
    assert sorted(a.id for a in store.sample(9, rng())) == ids
    assert store.sample(0, rng()) == [] and len(store.sample(9, rng(), replace=True)) == 9


def test_an_empty_selection_leaves_the_generator_alone(store):
    generator = rng()
    before = generator.bit_generator.state
    assert store.sample(3, generator) == [] and generator.bit_generator.state == before


def test_gate_difficulty_and_pools(store):
    never, none, few, half, most = numbered(store, [None, 0.0, 0.2, 0.5, 0.9])
    other = store.add({"i": 0}, pool="other")
    assert set(drawn(store, gate=(0.1, 0.9))) == {never, few, half, most, other}
    assert set(drawn(store, gate=(0.3, 0.6), pool="default")) == {never, half}
    assert set(drawn(store, difficulty=(0.0, 0.3))) == {none, few}
    assert {level: [a.id for a in found] for level, found in store.pools().items()} == {
        "easy": [most], "medium": [half], "hard": [none, few], "unseen": [never, other],
    }  # fmt: skip
    assert [a.id for a in store.pools("other")["unseen"]] == [other]


def test_the_gate_sees_what_was_recorded_since(store):
    """What may be drawn is kept between calls; a change must throw it away."""
    one, two = numbered(store, [0.5, 0.5])
    assert set(drawn(store, gate=(0.2, 0.8))) == {one, two}
    store.record(one, 90, 90, step=2)
    assert set(drawn(store, gate=(0.2, 0.8))) == {two}
    with pytest.raises(RuntimeError), store.transaction():
        store.record(two, 90, 90, step=2)
        assert not drawn(store, gate=(0.2, 0.8))
        raise RuntimeError
    assert set(drawn(store, gate=(0.2, 0.8))) == {two}  # undone


def test_learnable_odds(store):
    numbered(store, [None, 0.5, 0.0])
    counts = drawn(store, 6000, learnable=True)
    want = np.array([learnability(0, 0), learnability(5, 10), learnability(0, 10)])
    assert [counts[i] / 6000 for i in (1, 2, 3)] == pytest.approx(want / want.sum(), abs=0.02)


def test_learnability_is_p_times_one_minus_p():
    assert learnability(0, 0) == 0.25
    assert learnability(50_000, 100_000) == pytest.approx(0.25)
    assert learnability(20_000, 100_000) == pytest.approx(0.16, abs=1e-4)
    with sqlite3.connect(":memory:") as db:
        for successes, attempts in ((0.0, 0.0), (3.0, 8.0), (7.5, 9.25)):
            asked = f"SELECT {LEARNABILITY} FROM (SELECT ? AS successes, ? AS attempts)"
            ((found,),) = db.execute(asked, (successes, attempts))
            assert found == pytest.approx(learnability(successes, attempts), rel=1e-15)
    db.close()


def test_age(store):
    for step in (0, 5, 10):
        store.add({"step": step}, step=step)
    assert set(drawn(store, max_age=5, step=10)) == {2, 3}
    assert set(drawn(store, max_age=5, step=16)) == set()
    assert set(drawn(store, step=99)) == {1, 2, 3}


def test_capacity_evicts_the_least_learnable_then_the_oldest():
    with ArtifactStore(capacity=3) as store:
        assert numbered(store, [0.5, 1.0, None]) == [1, 2, 3]
        assert store.add({"new": 1}) == 4 and [a.id for a in store] == [1, 3, 4]  # 2 was solved always
        assert store.add({"new": 2}) == 5 and [a.id for a in store] == [3, 4, 5]  # 1, 3 and 4 are alike; 1 is oldest
        with pytest.raises(KeyError, match="evicted"):
            store.record(2, 1, 1, step=3)
        assert store.add({"i": 1}) == 6  # it may come again, under a new id


def test_recent(store):
    numbered(store, [None] * 4)
    store.add({"i": 0}, pool="other")
    assert [a.id for a in store.recent(2)] == [4, 5] and [a.id for a in store.recent(2, "default")] == [3, 4]


def test_a_dump_gives_an_equal_store(store, tmp_path):
    """Ids, order, the next id and what is drawn, through JSON and into a file that held something else."""
    numbered(store, [None, 1 / 3, 0.7] * 4, pool="sums", weight=0.1)
    with ArtifactStore(capacity=12, decay=0.9) as small:
        small.load(store.dump())
        small.add({"new": 1})
        small.add({"new": 2})
        data = json.loads(json.dumps(small.dump()))
        with ArtifactStore(tmp_path / "a.db") as other:
            numbered(other, [0.5] * 30)
            other.load(data)
            assert list(other) == list(small) and other.dump() == small.dump() == data
            assert other.sample(5, rng(1), learnable=True) == small.sample(5, rng(1), learnable=True)
            assert other.add({"new": 3}) == small.add({"new": 3}) == 15
    with ArtifactStore(tmp_path / "a.db") as again:
        assert [a.id for a in again][-1] == 15


def test_an_empty_dump(store):
    data = store.dump()
    numbered(store, [None])
    store.load(data)
    assert len(store) == 0 and store.dump() == data and store.add({}) == 1


def test_load_changes_nothing_when_it_fails(store):
    numbered(store, [None, 0.5])
    before = store.dump()
    broken = json.loads(json.dumps(before))
    broken["artifacts"][1]["id"] = 1
    with pytest.raises(sqlite3.IntegrityError):
        store.load(broken)
    del broken["artifacts"][1]["key"]
    with pytest.raises(ValueError, match="artifact 1 has no field 'key'"):
        store.load(broken)
    with pytest.raises(ValueError, match="format 9 cannot be read"):
        store.load({**before, "format": 9})
    assert store.dump() == before


def test_export(store, tmp_path):
    numbered(store, [None, 0.5])
    assert store.export(tmp_path / "out.jsonl") == 2
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["pass_rate"] for row in rows] == [None, 0.5] and rows[1]["content"] == {"i": 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.add(["a"]), "content must be a dict of JSON values; got list"),
        (lambda s: s.add({"a": {1, 2}}), "content must hold JSON values only"),
        (lambda s: s.add({"a": float("nan")}), "content must hold JSON values only"),
        (lambda s: s.add({"a": (1, 2)}), "does not survive a JSON round trip"),
        (lambda s: s.add({"a": 1}, meta={1: 2}), "meta does not survive a JSON round trip"),
        (lambda s: s.add({"a": 1}, weight=-1), "weight must be a finite number from 0"),
        (lambda s: s.add({"a": 1}, weight=float("inf")), "weight must be a finite number"),
        (lambda s: s.add({"a": 1}, step=-1), "step must be a whole number"),
        (lambda s: s.record(1, 3, 2, 0), "successes must be a finite number from 0 to 2; got 3"),
        (lambda s: s.sample(-1, rng()), "n must be a whole number"),
        (lambda s: s.sample(1, rng(), gate=(0.9, 0.1)), "gate low must be a finite number from 0 to 0.1; got 0.9"),
        (lambda s: s.sample(1, rng(), gate=0.5), r"gate must be a pair \(low, high\)"),
        (lambda s: s.sample(1, rng(), difficulty=(0, 2)), "difficulty high must be a finite number from 0 to 1"),
        (lambda s: s.sample(1, rng(), max_age=3), "needs the current step"),
        (lambda s: ArtifactStore(capacity=0), "capacity must be a whole number of at least 1"),
        (lambda s: ArtifactStore(decay=2.0), "decay must be a finite number from 0 to 1"),
        (lambda s: ArtifactStore("/no/such/directory/a.db"), "is its directory there"),
    ],
)
def test_errors_explain(store, call, message):
    numbered(store, [None])
    before = store.dump()
    with pytest.raises(ValueError, match=message):
        call(store)
    assert store.dump() == before


def test_files_of_another_kind_are_refused_and_kept(tmp_path):
    text, other = tmp_path / "notes.db", tmp_path / "other.db"
    text.write_text("not a database, but long enough that SQLite reads its header " * 9)
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE mine (a)")
    db.commit()
    db.close()
    before = text.read_bytes(), other.read_bytes()
    with pytest.raises(ValueError, match="is not an artifact store"):
        ArtifactStore(text)
    with pytest.raises(ValueError, match=r"of another kind \(version 0, tables \['mine'\]\)"):
        ArtifactStore(other)
    assert (text.read_bytes(), other.read_bytes()) == before


def test_threads_share_a_store(tmp_path):
    """Eight threads add and record; nothing is lost, and a transaction of one is never mixed with another's."""
    with ArtifactStore(tmp_path / "a.db") as store:
        (shared,) = numbered(store, [None])
        failed = []

        def work(name: int) -> None:
            try:
                for i in range(20):
                    with store.transaction():
                        store.add({"thread": name, "i": i})
                        store.record(shared, 1, 2, step=i)
                    store.sample(3, rng(i))
            except Exception as error:  # a thread's error would be lost
                failed.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and len(store) == 161 and store[shared].attempts == 320


def test_a_second_connection_is_seen(tmp_path):
    with ArtifactStore(tmp_path / "a.db") as one, ArtifactStore(tmp_path / "a.db") as two:
        numbered(one, [None])
        assert len(two.sample(9, rng())) == 1
        one.add({"more": 1})
        assert len(two.sample(9, rng())) == 2


KILLED = """
import os, signal, sys
from legos_train.arena.artifact_store import ArtifactStore
store = ArtifactStore(sys.argv[1])
for step in range(10_000):
    with store.transaction():
        for part in range(3):
            number = store.add({"step": step, "part": part}, step=step)
            store.record(number, 1, 2, step)
        if step == 5:
            print("going", flush=True)
        if step == 200:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_whole_transactions(tmp_path):
    path = tmp_path / "a.db"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, cwd=os.getcwd(), timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with ArtifactStore(path) as store:
        assert store._db.query("PRAGMA integrity_check") == [("ok",)]
        assert len(store) == 600 and all(a.attempts == 2 for a in store)
        assert store.add({"after": 1}) == 601
