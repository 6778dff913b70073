"""Speculation changes how many passes it takes, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zoo
from asking import change, query
from test_engine import close

from inference import Engine, Request
from inference.engine.drafts import LONGEST, Drafts, _repeated, draft, wanted
from inference.engine.rows import Cohort, Row
from inference.engine.sampling import CheckedParams

RNG = np.random.default_rng(5)
PROMPTS = [RNG.integers(5, 290, n).tolist() for n in (12, 20, 5, 31)]


@pytest.fixture(scope="module")
def engine(random_model: tuple[Any, Any]) -> Iterator[Engine]:
    with Engine(*random_model) as engine:
        yield engine


def steps(engine: Engine, requests: list[Request]) -> tuple[list[Any], int]:
    ids = [engine.submit(request) for request in requests]
    done: dict[int, Any] = {}
    count = 0
    while engine.busy:
        done.update((c.request_id, c) for c in engine.step())
        count += 1
    return [done[i] for i in ids], count


def requests(count: int = 24) -> list[Request]:
    return [
        query(
            PROMPTS[i % 4],
            3 + i % 14,
            seed=i // 2,
            temperature=[0.0, 0.3, 1.0][i % 3],
            top_k=[0, 5][i % 2],
            stop_ids=frozenset({7, 8, 9}),
            logit_bias={11: 2.0} if i % 5 == 0 else None,
            top_logprobs=2,
            allowed=[(1, 2, 3), (1, 4)] if i % 11 == 10 else None,
            park=i % 3 == 0,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("path", "max_rows"), [("numpy", 1), ("numpy", 5), ("numpy", 64), ("gemma3_text", 5), ("qwen3_5", 1)]
)
def test_the_same_tokens_whatever_is_drafted(random_model: tuple[Any, Any], path: str, max_rows: int) -> None:
    """Twice, so that the second time everything has been said before; half of the requests speculate the third time."""
    model, tokenizer = random_model if path == "numpy" else (zoo.build(path), None)
    work = requests(12)
    if tokenizer is None:
        work = [change(r, stop_ids=frozenset({7}), seed=i) for i, r in enumerate(work)]
        work = [Request([t % 95 for t in r.prompt], r.sampling, park=r.park) for r in work]
    with Engine(model, tokenizer, max_rows=max_rows, lookahead="on") as engine:
        expected, plain = steps(engine, work)
        guessed = [change(r, speculate=1 + i % 9) for i, r in enumerate(work)]
        counts = []
        for again in (guessed, guessed, [a if i % 2 else b for i, (a, b) in enumerate(zip(work, guessed))]):
            found, count = steps(engine, again)
            counts.append(count)
            for a, b in zip(expected, found):
                assert close(a, b) and [[t for t, _ in top] for top in a.top_logprobs] == [
                    [t for t, _ in top] for top in b.top_logprobs
                ]
        if path == "qwen3_5":
            assert counts[1] <= plain + 1  # states cannot go back: nothing is drafted
        else:
            assert counts[1] < 0.7 * plain
        assert not engine._tickets


def test_what_was_said_before_is_said_again_in_fewer_steps(engine: Engine) -> None:
    engine.drop_caches()
    request = query(PROMPTS[0], 40, seed=3, stop_ids=frozenset(), speculate=LONGEST, stream=True)
    [first], slow = steps(engine, [request])
    engine.deltas()
    [again], fast = steps(engine, [request])
    assert again.tokens == first.tokens and slow <= 41 and fast == 1 + -(-39 // (LONGEST + 1))
    assert [t for delta in engine.deltas() for t in delta.tokens] == again.tokens
    assert np.allclose(engine.score([PROMPTS[0]], [again.tokens])[0], again.logprobs, atol=1e-4)


def test_the_distribution_is_that_of_the_model(random_model: tuple[Any, Any]) -> None:
    """Chi-square over the first tokens of 2,000 answers; the first drafts come from another temperature."""
    engine = Engine(*random_model, share_rows=False)
    prompt, kept = PROMPTS[2], list(range(20, 26))
    options = {"logit_bias": {t: 60.0 for t in kept}, "stop_ids": frozenset[int](), "temperature": 1.0}
    steps(engine, [query(prompt, 3, seed=i, speculate=4, **{**options, "temperature": 0.5}) for i in range(5)])
    work = [query(prompt, 3, seed=1000 + i, speculate=4, **options) for i in range(2000)]
    answers, count = steps(engine, work)
    assert count < 0.9 * 3 * 2000 / 64  # as many as without
    found = [c.tokens for c in answers]
    seen = Counter((a, b, c) for a, b, c in found)

    def chances(tokens: list[int]) -> dict[int, float]:
        logits = engine.next_logits([[*prompt, *tokens]])[0][kept].astype(np.float64)
        weights = np.exp(logits - logits.max())
        return dict(zip(kept, weights / weights.sum()))

    expected = {
        (a, b, c): 2000 * p * q * r
        for a, p in chances([]).items()
        for b, q in chances([a]).items()
        for c, r in chances([a, b]).items()
    }
    usual = [k for k, e in expected.items() if e >= 5]
    rest = 2000 - sum(expected[k] for k in usual)
    chi = sum((seen[k] - expected[k]) ** 2 / expected[k] for k in usual)
    chi += (2000 - sum(seen[k] for k in usual) - rest) ** 2 / max(rest, 1.0)
    # The mean is the number of cells less one, the deviation the root of twice that.
    assert len(usual) > 5 and abs(chi - len(usual)) < 4 * np.sqrt(2 * len(usual)), (chi, len(usual))
    engine.close()


def row(said: int = 3, **options: Any) -> Row:
    params = CheckedParams(max_tokens=20, stop_ids=frozenset(), **{"speculate": 4, **options})
    cohort = Cohort(params, np.arange(1), np.arange(1).astype(np.uint64))
    return Row((1, 2, 3, 4), None, [cohort], reach=24, tokens=[5, 6, 7][:said], pos=3 + said, pending=(7,))


def test_rows_get_drafts_of_one_length_where_there_is_room() -> None:
    assert wanted(row()) == 4 and wanted(row(speculate=100)) == LONGEST and wanted(row(speculate=0)) == 0
    drafts = Drafts()
    drafts.learn((1, 2, 3, 4), [5, 6, 7, 8, 0])
    rows = [row(), row(said=0), row(speculate=0), row(speculate=0), row()]
    rows[3].reach = rows[3].pos + 4
    rows[4].pos, rows[4].pending = 0, rows[4].prompt
    draft(rows, drafts)
    assert [tuple(r.draft) for r in rows] == [(8, 0, 0, 0), (5, 6, 7, 8), (0, 0, 0, 0), (), ()]
    many = [row(speculate=0) for _ in range(8)]
    draft([row(), *many], drafts)
    assert not any(r.draft for r in many)  # one of nine: not worth it


def test_rows_without_drafts_of_their_own_are_fed_with_the_others(engine: Engine) -> None:
    engine.drop_caches()
    work = [query(PROMPTS[i], 12, seed=i, stop_ids=frozenset(), speculate=2 * i) for i in range(4)]
    expected, _ = steps(engine, [change(r, speculate=0) for r in work])
    steps(engine, work)
    fed, taken = engine.drafts.fed, engine.drafts.taken
    found, _ = steps(engine, work)
    assert all(close(a, b) for a, b in zip(expected, found))
    assert 0 < engine.drafts.taken - taken <= engine.drafts.fed - fed < 12 * 4


def test_what_a_row_was_only_padded_with_is_no_draft_taken(engine: Engine) -> None:
    engine.drop_caches()
    known = query(PROMPTS[0], 12, seed=0, stop_ids=frozenset(), speculate=8)
    zeros = query(PROMPTS[1], 12, seed=1, stop_ids=frozenset(), logit_bias={0: 1000.0})
    steps(engine, [known])
    fed, taken = engine.drafts.fed, engine.drafts.taken
    (_, found), _ = steps(engine, [known, zeros])
    assert found.tokens == [0] * 12  # each filler is what is drawn
    assert 0 < engine.drafts.taken - taken <= engine.drafts.fed - fed


def test_drafts_are_those_of_the_same_tokens_then_of_the_last_ones_then_of_the_conversation() -> None:
    drafts = Drafts(most=40)
    drafts.learn((1, 2, 3, 4), [5, 6, 7, 8])
    assert drafts.after((1, 2, 3, 4), [], 8) == (5, 6, 7, 8)
    assert drafts.after((1, 2, 3, 4), [5, 6], 1) == (7,)
    assert drafts.after((9, 2, 3, 4), [], 8) == (5, 6, 7, 8)
    drafts.learn((9, 2, 3, 4), [0])
    assert drafts.after((1, 2, 3, 4), [], 8) == (5, 6, 7, 8) and drafts.after((9, 2, 3, 4), [], 8) == (0,)
    assert drafts.after((1, 2, 3, 4), [5, 6, 7, 8], 8) == ()
    assert drafts.after((30, 31, 32, 33), [34, 30, 31, 32], 8) == (33, 34, 30, 31, 32)
    for i in range(100):
        drafts.learn((i, i, i), [i] * 3)
        assert len(drafts) <= 40
    assert _repeated([1, 2]) == _repeated([256, 256, 256, 256, 1, 1, 1]) == ()  # the bytes are there, the tokens not
