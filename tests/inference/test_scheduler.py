"""Rows, branches and slots without a model: a fake model whose next token depends on the whole history only."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.rows import Finished, Outcome
from inference.engine.sampling import CheckedParams, Draw
from inference.engine.scheduler import Scheduler


def fake_token(history: tuple[int, ...], seed: int) -> int:
    digest = hashlib.sha256(repr((history, seed % 5)).encode()).digest()
    return digest[0] % 3


def expected_tokens(prompt: tuple[int, ...], seed: int, limit: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < limit and 0 not in tokens:  # token 0 is the stop token
        tokens.append(fake_token((*prompt, *tokens), seed))
    return tokens


class FakeModel:
    """Slots hold the tokens that were written to them; a row must find its own history there at every step."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}

    def run(self, scheduler: Scheduler) -> list[Finished]:
        plan = scheduler.plan()
        read = {destination: self.slots[source][:entries] for destination, source, entries in plan.copies}
        for destination, entries in read.items():
            self.slots[destination] = entries + self.slots.get(destination, [])[len(entries) :]
        assert [row.slot for row in scheduler.rows] == list(range(len(scheduler.rows)))
        assert len(scheduler.rows) <= scheduler.max_rows
        outcomes = {}
        for row in scheduler.rows:
            slot = self.slots.setdefault(row.slot, [])
            history = (*row.prompt, *row.tokens)
            assert tuple(slot[: row.pos]) == history[: row.pos]
            assert history[row.pos :] == tuple(row.pending)
            slot[row.pos : row.pos + len(row.pending)] = row.pending
            draws = []
            for cohort in row.cohorts:
                tokens = np.array([fake_token(history, int(seed)) for seed in cohort.seeds])
                draws.append(Draw(tokens, np.full(len(tokens), -1.0)))
            outcomes[row] = Outcome(draws, np.log(np.array([0.2, 0.3, 0.5])), 0.0)
        return scheduler.advance(outcomes)


def params(limit: int) -> CheckedParams:
    return CheckedParams(max_tokens=limit, stop_ids=frozenset({0}))


JOB = st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 6), st.integers(0, 4))


@given(jobs=st.lists(JOB, max_size=30), max_rows=st.integers(1, 5), share=st.booleans(), budget=st.integers(1, 20))
def test_every_request_gets_its_own_tokens(
    jobs: list[tuple[int, int, int, int]], max_rows: int, share: bool, budget: int
) -> None:
    prompts = [(7,), (7, 8), (9, 9, 9)]
    scheduler, kv = Scheduler(max_rows, token_budget=budget, share=share), FakeModel()
    found: dict[int, tuple[list[int], str]] = {}
    step = 0
    while scheduler.busy or step < 5:
        for i, (prompt, seed, limit, arrival) in enumerate(jobs):
            if arrival == step:
                scheduler.add(i, "policy", prompts[prompt], params(limit), seed, 0)
        for ids, row, _, reason in kv.run(scheduler):
            for i in ids.tolist():
                assert i not in found
                found[i] = (row.tokens, reason)
        step += 1
        assert step < 1000
    assert sorted(found) == list(range(len(jobs)))
    for i, (prompt, seed, limit, _) in enumerate(jobs):
        tokens = expected_tokens(prompts[prompt], seed, limit)
        assert found[i] == (tokens, "stop" if tokens[-1] == 0 else "length")


@given(
    jobs=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(2, 6)), min_size=1, max_size=20),
    gone=st.sets(st.integers(0, 19)),
    when=st.integers(0, 3),
    max_rows=st.integers(1, 3),
)
def test_removing_requests_leaves_the_others_alone(
    jobs: list[tuple[int, int, int]], gone: set[int], when: int, max_rows: int
) -> None:
    prompts = [(5, 6), (5, 6, 7)]
    scheduler, kv = Scheduler(max_rows), FakeModel()
    for i, (prompt, seed, limit) in enumerate(jobs):
        scheduler.add(i, "policy", prompts[prompt], params(limit), seed, 0)
    ended: dict[int, tuple[list[int], str]] = {}
    step = 0
    while scheduler.busy:
        removed = scheduler.remove(gone) if step == when else []
        ended.update((i, (row.tokens.copy(), reason)) for ids, row, _, reason in removed for i in ids.tolist())
        ran = kv.run(scheduler)
        ended.update((i, (row.tokens.copy(), reason)) for ids, row, _, reason in ran for i in ids.tolist())
        step += 1
    assert sorted(ended) == list(range(len(jobs)))
    for i, (prompt, seed, limit) in enumerate(jobs):
        tokens, reason = ended[i]
        full = expected_tokens(prompts[prompt], seed, limit)
        if reason == "aborted":
            assert i in gone
            assert tokens == full[: len(tokens)]
        else:
            assert tokens == full


def test_equal_prompts_share_one_row_and_other_policies_do_not() -> None:
    scheduler = Scheduler(8)
    for i in range(20):
        scheduler.add(i, "a", (1, 2), params(3), i, 0)
    scheduler.add(20, "b", (1, 2), params(3), 0, 0)
    assert [len(list(row.request_ids())) for row in scheduler.plan().admitted] == [20, 1]


def test_long_rows_leave_room_for_fewer() -> None:
    scheduler = Scheduler(8, row_limit=lambda reach: 100 // reach)
    for i in range(8):
        scheduler.add(i, "a", (i,) * 20, params(20), 0, 0)
    assert len(scheduler.plan().admitted) == 2


def test_a_failed_row_hands_its_slot_to_its_branch() -> None:
    scheduler, kv = Scheduler(1), FakeModel()
    for seed in range(5):
        scheduler.add(seed, "a", (3,), params(4), seed, 0)
    while not (scheduler.rows and scheduler.rows[0].branches):
        kv.run(scheduler)
    host = scheduler.rows[0]
    branches = list(host.branches)
    [failed] = [f for f in scheduler.fail(host)]
    assert failed.reason == "error"
    assert scheduler.rows == [branches[-1]]
    assert scheduler.rows[0].slot == 0
    assert scheduler.rows[0].branches == branches[:-1]
