"""Recurrent states in slots: splits, branches that wait, kept beginnings, memory. test_zoo.py has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import zoo
from asking import query
from test_engine import close

from inference import Completion, Engine, Request
from inference.engine import engine as engine_module
from inference.engine.prefix_cache import PrefixCache

RNG = np.random.default_rng(4)
PROMPT = RNG.integers(1, 95, 40).tolist()


@pytest.fixture(scope="module", params=["qwen3_5", "recurrent_gemma"])
def singles(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One row at a time, nothing shared and nothing kept: what is right."""
    with Engine(zoo.build(request.param), None, max_rows=1, share_rows=False, prefix_cache_bytes=0) as engine:
        yield engine


def group(count: int) -> list[Request]:
    return [query(PROMPT, 6 + i % 7, seed=i, stop_ids=frozenset()) for i in range(count)]


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(held states, branches that start over) after every step that leaves branches waiting."""
    seen: list[tuple[int, int]] = []
    original = engine_module.branch_states.hold

    def hold(kv: object, rows: Sequence[object], most: int) -> None:
        original(kv, rows, most)
        branches = [branch for row in engine._scheduler.rows for branch in row.branches]
        if branches:
            seen.append((len({id(b.held) for b in branches if b.held is not None}), sum(not b.pos for b in branches)))

    monkeypatch.setattr(engine_module.branch_states, "hold", hold)
    return seen


@pytest.mark.quick
@pytest.mark.parametrize("max_rows", [1, 3, 64])
@pytest.mark.parametrize("memory", ["held", "start over"])
def test_requests_that_part_ways_get_what_they_would_get_alone(
    singles: Engine, max_rows: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [singles.generate([request])[0] for request in group(9)]
    if memory == "start over":
        monkeypatch.setattr(engine_module, "_HELD", 1 << 40)
    with Engine(singles.model, None, max_rows=max_rows) as engine:
        seen = watched(engine, monkeypatch)
        found = engine.generate(group(9))
        assert all(close(a, b) for a, b in zip(found, expected))
        assert bool(seen) == (max_rows < 9)
        if seen and memory == "held":
            assert all(held > 0 and not over for held, over in seen)
        elif seen:
            assert all(not held and over for held, over in seen)


@pytest.mark.quick(1)
def test_a_host_that_is_aborted_leaves_its_slot_to_a_branch_with_its_own_state(singles: Engine) -> None:
    expected = [singles.generate([request])[0] for request in group(9)]
    with Engine(singles.model, None, max_rows=1) as engine:
        ids = [engine.submit(request) for request in group(9)]
        done: list[Completion] = []
        for _ in range(4):
            done += engine.step()
        [host] = engine._scheduler.rows
        gone = set(host.request_ids())
        assert host.branches and gone < set(ids)
        for request_id in gone:
            engine.abort(request_id)
        while engine.busy:
            done += engine.step()
    by_id = {c.request_id: c for c in done}
    assert all(close(by_id[i], e) for i, e in zip(ids, expected) if i not in gone)


def test_beginnings_are_kept_whole_with_their_states(singles: Engine) -> None:
    tails = [RNG.integers(1, 95, n).tolist() for n in (3, 9, 5, 1)]
    requests = [query([*PROMPT, *tail], 5, seed=i, stop_ids=frozenset()) for i, tail in enumerate(tails)]
    expected = [singles.generate([request])[0] for request in requests]
    with Engine(singles.model, None) as engine:
        first = engine.generate(requests[:2])  # their common beginning is computed once
        assert [c.cached_tokens for c in first] in ([0, 40], [40, 0])
        later = [engine.generate([request])[0] for request in requests[2:]]
        assert [c.cached_tokens for c in later] == [40, 40]
        assert all(close(a, b) for a, b in zip([*first, *later], expected))
        # What shares less than all of it finds nothing: there is no state in between.
        [shorter] = engine.generate([query([*PROMPT[:30], 3, 4], 2, stop_ids=frozenset())])
        assert shorter.cached_tokens == 0
        runner = engine._runner
        assert runner.prefixes.nbytes >= runner.bytes_per_row + 40 * runner.bytes_per_entry > runner.bytes_per_row > 0


def test_entries_used_whole_do_not_replace_each_other() -> None:
    def part(nbytes: int) -> list[tuple[np.ndarray, ...]]:
        return [(np.zeros(nbytes, np.int8),)]

    tokens = list(range(60))
    whole, cut = PrefixCache(1000, whole=True), PrefixCache(1000)
    for cache in (whole, cut):
        for length in (20, 37, 50):
            cache.put("a", tokens[:length], part(length))
    assert (len(whole), len(cut), whole.nbytes, cut.nbytes) == (3, 1, 107, 50)
    assert [whole.longest("a", tokens[:n])[1] for n in (60, 51, 50, 38, 37, 21, 20, 5)] == [
        50,
        50,
        37,
        37,
        20,
        20,
        0,
        0,
    ]
    assert [cut.longest("a", tokens[:n])[1] for n in (60, 50, 38, 20)] == [50, 49, 37, 19]
    assert whole.longest("b", tokens) == (None, 0)
    whole.put("a", tokens[:37], part(40))
    assert (len(whole), whole.nbytes) == (3, 110)


def test_memory_is_planned_with_the_states_of_a_row(singles: Engine) -> None:
    entry, row = singles._runner.bytes_per_entry, singles._runner.bytes_per_row
    with Engine(singles.model, None, max_kv_bytes=4 * (row + 64 * entry)) as engine:
        assert engine._row_limit(64) == 4
        engine.generate([query(RNG.integers(1, 95, 30).tolist(), 3, stop_ids=frozenset()) for _ in range(6)])
        assert engine._kv.nbytes <= engine._max_kv_bytes
    with Engine(singles.model, None, max_kv_bytes=row) as engine, pytest.raises(ValueError, match="max_kv_bytes"):
        engine.submit(query(PROMPT, 3))
