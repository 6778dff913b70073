"""The engine against plain forward passes, and against itself in other company."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from asking import query
from hypothesis import given, settings
from hypothesis import strategies as st

from inference import Completion, ContextOverflow, Engine, InferenceError, Request, SamplingParams, UnknownRequest
from inference.engine.engine import SIDE_BY_SIDE
from inference.engine.sampling import draw, uniforms
from inference.forward import Fed

RNG = np.random.default_rng(0)
RULES = RNG.integers(5, 290, 40).tolist()
PROMPTS = [RULES + RNG.integers(5, 290, n).tolist() for n in (3, 9, 17)] + [RNG.integers(5, 290, 6).tolist()]


@pytest.fixture(scope="module")
def engines(random_model: tuple[Any, Any]) -> Iterator[Callable[..., Engine]]:
    """engines(**options): one engine per set of options, returned to its initial state."""
    made: dict[tuple[tuple[str, Any], ...], Engine] = {}

    def make(**options: Any) -> Engine:
        key = tuple(sorted(options.items()))
        if key not in made:
            made[key] = Engine(*random_model, **options)
        made[key].drop_caches()
        return made[key]

    yield make
    for engine in made.values():
        engine.close()


def forward_logprobs(model: Any, prompt: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Log-probabilities by one uncached pass over prompt and tokens."""
    logits = model(mx.array([[*prompt, *tokens][:-1]]))[0, len(prompt) - 1 :]
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return np.array(mx.take_along_axis(logprobs, mx.array(list(tokens))[:, None], axis=-1))[:, 0]


def close(a: Completion, b: Completion) -> bool:
    """The same completion up to the rounding of another batch shape, whatever its id."""
    return (a.tokens, a.finish_reason) == (b.tokens, b.finish_reason) and np.allclose(
        [a.logprobs, a.sampled_logprobs], [b.logprobs, b.sampled_logprobs], atol=1e-4
    )


REQUEST = st.builds(
    lambda prompt, max_tokens, temperature, seed, top_p, arrival: (
        query(PROMPTS[prompt], max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed),
        arrival,
    ),
    st.integers(0, len(PROMPTS) - 1),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    st.integers(0, 2**64 - 1),
    st.sampled_from([1.0, 0.8]),
    st.integers(0, 5),
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(jobs=st.lists(REQUEST, min_size=1, max_size=10), max_rows=st.sampled_from([1, 2, 3, 64]))
def test_what_a_request_gets_does_not_depend_on_its_company(
    engines: Callable[..., Engine], jobs: list[tuple[Request, int]], max_rows: int
) -> None:
    engine = engines(max_rows=max_rows)
    ids: dict[int, int] = {}
    done: dict[int, Completion] = {}
    step = 0
    while engine.busy or step <= 5:
        for i, (request, arrival) in enumerate(jobs):
            if arrival == step:
                ids[i] = engine.submit(request)
        done.update((completion.request_id, completion) for completion in engine.step())
        step += 1
    for i, (request, _) in enumerate(jobs):
        [alone] = engines(max_rows=1, share_rows=False).generate([request])
        assert close(done[ids[i]], alone)


def test_shared_rows_equal_unshared_rows(engines: Callable[..., Engine]) -> None:
    requests = [
        query(PROMPTS[i % 4], max_tokens=6, seed=i, temperature=(0.5, 1.0)[i % 2], stop_ids=frozenset({i % 3, 7}))
        for i in range(80)
    ]
    unshared = engines(share_rows=False).generate(requests)
    assert len({tuple(c.tokens) for c in unshared}) > 20
    for max_rows in (1, 5, 64):
        shared = engines(max_rows=max_rows).generate(requests)
        assert all(close(a, b) for a, b in zip(shared, unshared))


def test_logprobs_equal_a_full_forward_pass(engines: Callable[..., Engine], random_model: tuple[Any, Any]) -> None:
    # prefill_tokens=16 splits every prompt over several passes.
    for options in ({}, {"prefill_tokens": 16}):
        for completion, i in zip(
            engines(**options).generate([query(PROMPTS[i % 4], max_tokens=12, seed=i) for i in range(24)]),
            range(24),
        ):
            expected = forward_logprobs(random_model[0], PROMPTS[i % 4], completion.tokens)
            assert np.allclose(completion.logprobs, expected, atol=1e-4)


def test_score_and_next_logits_equal_a_full_forward_pass(
    engines: Callable[..., Engine], random_model: tuple[Any, Any]
) -> None:
    continuations = [RNG.integers(5, 290, n).tolist() for n in (1, 4, 2, 9, 1, 3)]
    prompts = [PROMPTS[i] for i in (0, 0, 1, 2, 3, 0)]
    for max_rows in (2, 64):
        engine = engines(max_rows=max_rows)
        running = engine.submit(query(PROMPTS[0], max_tokens=5, seed=3))
        engine.step()
        scores = engine.score([*prompts, prompts[0]], [*continuations, []])
        for prompt, continuation, score in zip(prompts, continuations, scores):
            assert np.allclose(score, forward_logprobs(random_model[0], prompt, continuation), atol=1e-4)
        assert scores[-1].shape == (0,)
        logits = engine.next_logits(prompts)
        for prompt, row in zip(prompts, logits):
            assert np.allclose(row, np.array(random_model[0](mx.array([prompt]))[0, -1]), atol=1e-4)
        while engine.busy:
            done = engine.step()
        assert done[0].request_id == running
        [alone] = engines(share_rows=False).generate([query(PROMPTS[0], max_tokens=5, seed=3)])
        assert close(done[0], alone)


def test_group_members_differ_and_follow_the_distribution(engines: Callable[..., Engine]) -> None:
    n = 6000
    completions = engines().generate([query(PROMPTS[3], max_tokens=1, temperature=2.0, seed=i) for i in range(n)])
    logits = engines().next_logits([PROMPTS[3]])[0].astype(np.float64) / 2.0
    p = np.exp(logits - logits.max())
    p /= p.sum()
    counts = np.bincount([c.tokens[0] for c in completions], minlength=len(p))
    common = p * n >= 8
    counts = np.append(counts[common], counts[~common].sum())
    expected = n * np.append(p[common], p[~common].sum())
    assert len(counts) > 20
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)


def test_a_token_is_fixed_by_seed_and_position(engines: Callable[..., Engine], random_model: tuple[Any, Any]) -> None:
    for seed in (0, 1, 2**64 - 1):
        [completion] = engines().generate([query(PROMPTS[1], 8, seed=seed, stop_ids=frozenset())])
        for position, token in enumerate(completion.tokens):
            history = [*PROMPTS[1], *completion.tokens[:position]]
            logits = np.array(random_model[0](mx.array([history]))[:, -1])
            number = uniforms(np.array([seed], dtype=np.uint64), np.array([position], dtype=np.uint64))
            assert draw(logits, SamplingParams(), [number])[0].tokens[0] == token


def test_parameters_are_data(engines: Callable[..., Engine]) -> None:
    # 120 different settings in one batch; each gets what it gets alone.
    requests = [
        query(PROMPTS[i % 4], 3, temperature=0.5 + i / 100, top_p=1 - i / 400, top_k=i % 7, min_p=i / 2000, seed=i)
        for i in range(120)
    ]
    together = engines().generate(requests)
    for i in range(0, 120, 17):
        [alone] = engines(max_rows=1).generate([requests[i]])
        assert close(alone, together[i])


def test_a_shared_beginning_is_computed_once_and_reported(engines: Callable[..., Engine]) -> None:
    engine = engines()
    first = engine.generate([query(p, max_tokens=1) for p in PROMPTS[:3]] + [query(PROMPTS[0], max_tokens=1)])
    assert sorted(c.cached_tokens for c in first[:3]) == [0, 40, 40]
    assert first[3].cached_tokens == len(PROMPTS[0])
    fresh = [*RULES, 11, 12, 13]
    [warm] = engine.generate([query(fresh, max_tokens=4, seed=5)])
    assert warm.cached_tokens == 40
    [cold] = engines(share_rows=False).generate([query(fresh, max_tokens=4, seed=5)])
    assert close(warm, cold)


def test_single_prompts_find_the_beginning_of_the_prompt_before(engines: Callable[..., Engine]) -> None:
    engine = engines()
    cached = [engine.generate([query(p, max_tokens=1)])[0].cached_tokens for p in PROMPTS[:3]]
    assert cached == [0, 0, 40]  # the second finds that it shares, computes and keeps the beginning


def test_stops_limits_and_the_context(engines: Callable[..., Engine], random_model: tuple[Any, Any]) -> None:
    engine = engines()
    [free] = engine.generate([query(PROMPTS[0], max_tokens=6, temperature=0.0, stop_ids=frozenset())])
    assert (len(free.tokens), free.finish_reason) == (6, "length")
    stop = free.tokens[2]
    [stopped] = engine.generate([query(PROMPTS[0], max_tokens=6, temperature=0.0, stop_ids=frozenset({stop}))])
    assert stopped.finish_reason == "stop"
    assert stopped.tokens == free.tokens[: free.tokens.index(stop) + 1]
    assert engine.eos_ids == frozenset({random_model[1].eos_token_id})
    long = (PROMPTS[3] * 100)[: engine.context - 3]
    [full] = engine.generate([query(long, max_tokens=50, stop_ids=frozenset())])
    assert (len(full.tokens), full.finish_reason) == (3, "length")
    with pytest.raises(ContextOverflow, match=r"has 512 tokens, the context 512"):
        engine.submit(query((PROMPTS[3] * 100)[: engine.context]))


def test_top_logprobs(engines: Callable[..., Engine]) -> None:
    wanting, plain = engines().generate(
        [query(PROMPTS[0], 3, temperature=0.0, top_logprobs=2), query(PROMPTS[0], 3, temperature=0.0)]
    )
    assert plain.top_logprobs is None
    assert wanting.top_logprobs is not None
    assert [top[0] for top in wanting.top_logprobs] == [pytest.approx(x) for x in zip(wanting.tokens, wanting.logprobs)]
    assert all(len(top) == 2 and top[0][1] >= top[1][1] for top in wanting.top_logprobs)


def test_the_same_submissions_give_bit_identical_results(engines: Callable[..., Engine]) -> None:
    def run() -> list[Completion]:
        engine = engines(max_rows=4)  # drops its caches
        found: list[Completion] = []
        for i in range(20):
            engine.submit(query(PROMPTS[i % 4], max_tokens=1 + i % 5, seed=i))
            if i % 3 == 0:
                found += engine.step()
        while engine.busy:
            found += engine.step()
        first = min(c.request_id for c in found)
        return [replace(c, request_id=c.request_id - first) for c in found]

    assert run() == run()


def test_abort_ends_waiting_and_running_requests(engines: Callable[..., Engine]) -> None:
    engine = engines(max_rows=1)
    running = [engine.submit(query(PROMPTS[0], max_tokens=9, seed=i, stop_ids=frozenset())) for i in range(3)]
    waiting = engine.submit(query(PROMPTS[1], max_tokens=9))
    engine.step()
    engine.abort(running[1])
    engine.abort(waiting)
    done = {c.request_id: c for c in engine.step()}
    assert {i: c.finish_reason for i, c in done.items()} == {running[1]: "aborted", waiting: "aborted"}
    assert (len(done[running[1]].tokens), len(done[waiting].tokens)) == (1, 0)
    while engine.busy:
        done.update((c.request_id, c) for c in engine.step())
    assert sorted(done) == sorted([*running, waiting])
    with pytest.raises(UnknownRequest, match="neither waiting nor running"):
        engine.abort(waiting)


POISON: list[tuple[dict[str, Any], str]] = [
    ({"prompt": []}, "empty"),
    ({"prompt": [5, -1]}, "token id -1"),
    ({"prompt": [5, 10**6]}, "token id 1000000"),
    ({"prompt": [5, 2**70]}, "token ids"),
    ({"prompt": [1.5, 2.0]}, "token ids"),
    ({"prompt": [True, False]}, "token ids"),
    ({"prompt": "text"}, "token ids"),
    ({"prompt": [[1, 2]]}, "token ids"),
    ({"prompt": [1, None]}, "token ids"),
    ({"prompt": 7}, "token ids"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"temperature": -1.0}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_p": float("nan")}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 2.5}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.1}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"seed": "x"}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"stop_ids": frozenset({10**6})}, "stop_ids"),
    ({"stop_ids": frozenset({"a"})}, "stop_ids"),
    ({"stop_ids": [[1]]}, "stop_ids"),
    ({"stop_ids": 5}, "stop_ids"),
    ({"adapter": "nobody"}, "nobody"),
    ({"top_logprobs": -1}, "top_logprobs"),
]


def test_bad_requests_are_refused_and_good_ones_go_on(engines: Callable[..., Engine]) -> None:
    engine = engines()
    good = query(PROMPTS[0], max_tokens=3, seed=1)
    [expected] = engine.generate([good])
    for change, word in POISON:
        with pytest.raises(ValueError, match=word):
            engine.submit(query(**{"prompt": PROMPTS[0], **change}))
        assert not engine.busy
        [after] = engine.generate([good])
        assert close(after, expected)


@pytest.mark.parametrize(
    "odd",
    [
        {"top_k": 10**9},  # more than the vocabulary
        {"temperature": 1e-30},
        {"temperature": 1e30},
        {"seed": -1},
        {"seed": 2**80},
        {"max_tokens": 10**9, "stop_ids": frozenset(range(290))},
        {"max_tokens": None, "stop_ids": frozenset(range(290))},
        {"top_logprobs": 10**6, "max_tokens": 1},
        {"prompt": np.array(PROMPTS[0])},
    ],
)
def test_odd_requests_are_served(engines: Callable[..., Engine], odd: dict[str, Any]) -> None:
    [completion] = engines().generate([query(**{"prompt": PROMPTS[0], "max_tokens": 3, **odd})])
    assert completion.finish_reason in ("stop", "length")
    assert np.isfinite(completion.logprobs).all()


def test_generate_refuses_a_bad_batch_whole(engines: Callable[..., Engine]) -> None:
    engine = engines()
    with pytest.raises(ValueError, match="empty") as caught:
        engine.generate([query(PROMPTS[0]), query([])])
    assert "request 1 of 2" in caught.value.__notes__[0]
    assert not engine.busy


class Between:
    """A forward pass with something that may go wrong in front of it."""

    def __init__(self, forward: Any, fault: Callable[..., Any]) -> None:
        self._forward, self._fault = forward, fault

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._fault(self._forward, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forward, name)


@pytest.mark.parametrize("fault", ["raises", "nan"])
@pytest.mark.parametrize("max_rows", [2, 64])
def test_a_fault_in_the_model_ends_only_the_requests_that_cause_it(
    random_model: tuple[Any, Any], fault: str, max_rows: int
) -> None:
    with Engine(*random_model, max_rows=max_rows) as engine:
        requests = [query(PROMPTS[i % 2], max_tokens=6, seed=i, stop_ids=frozenset()) for i in range(24)]
        expected = engine.generate(requests)
        engine.drop_caches()
        bad_token = expected[0].tokens[1]
        assert bad_token not in PROMPTS[0] + PROMPTS[1]

        def faulty(forward: Any, kv: Any, fed: Fed) -> Any:
            hit = (fed.tokens == bad_token).any(axis=1)
            if fault == "raises" and hit.any():
                raise RuntimeError("cannot digest this")
            out = np.array(forward(kv, fed))
            out[hit] = np.nan
            return out

        engine._runner.forward = Between(engine._runner.forward, faulty)
        guilty = 0
        for completion, alone in zip(engine.generate(requests), expected):
            if bad_token in alone.tokens[:-1]:
                guilty += 1
                assert completion.finish_reason == "error"
                assert completion.error in ("RuntimeError: cannot digest this", "the model's logits are not finite")
                assert completion.tokens == alone.tokens[: alone.tokens.index(bad_token) + 1]
            else:
                assert close(completion, alone)
        assert 0 < guilty < 24


def test_an_exception_that_nobody_causes_alone_does_not_hang(random_model: tuple[Any, Any]) -> None:
    with Engine(*random_model) as engine:

        def crowded(forward: Any, kv: Any, fed: Fed) -> Any:
            if len(fed.tokens) > 1:
                raise MemoryError("too many")
            return forward(kv, fed)

        engine._runner.forward = Between(engine._runner.forward, crowded)
        done = engine.generate([query(p, max_tokens=3) for p in PROMPTS])
        assert {c.finish_reason for c in done} == {"error"}
        [fine] = engine.generate([query(PROMPTS[0], max_tokens=3)])
        assert fine.finish_reason in ("stop", "length")


def test_drop_caches_needs_an_idle_engine_and_close_ends_it(random_model: tuple[Any, Any]) -> None:
    engine = Engine(*random_model)
    engine.submit(query(PROMPTS[0], max_tokens=2))
    with pytest.raises(InferenceError, match="idle"):
        engine.drop_caches()
    engine.close()
    engine.close()
    with pytest.raises(InferenceError, match="closed"):
        engine.step()


def test_a_request_without_a_limit_gets_as_much_as_leaves_room_for_others(engines: Callable[..., Engine]) -> None:
    """It was refused where the context is larger than the memory, as with the defaults and Qwen3-0.6B."""
    large, small = engines(), engines(max_kv_bytes=300_000)
    unlimited = query(PROMPTS[0], max_tokens=None, stop_ids=frozenset())
    (whole,) = large.generate([unlimited])
    assert len(whole.tokens) + len(PROMPTS[0]) == large.context
    (part,) = small.generate([unlimited])
    assert 0 < len(part.tokens) < len(whole.tokens) and part.finish_reason == "length"
    reach = len(part.tokens) + len(PROMPTS[0])
    assert small._stepper.row_limit(reach) >= SIDE_BY_SIDE > small._stepper.row_limit(reach + 1)
    long = query(list(PROMPTS[0]) * 200, max_tokens=None, stop_ids=frozenset())
    long = query(long.prompt[: small._stepper.longest(SIDE_BY_SIDE, small.context) + 1], max_tokens=None)
    assert small.generate([long])[0].tokens, "the prompt alone takes more than a quarter"


def test_keys_and_values_stay_within_their_budget(engines: Callable[..., Engine]) -> None:
    engine = engines(max_kv_bytes=300_000)
    completions = engine.generate([query(PROMPTS[i % 4], max_tokens=4, temperature=2.0, seed=i) for i in range(40)])
    expected = engines().generate([query(PROMPTS[i % 4], max_tokens=4, temperature=2.0, seed=i) for i in range(40)])
    assert all(close(a, b) for a, b in zip(completions, expected))
    assert engine._stepper.kv.nbytes <= 600_000
    with pytest.raises(ValueError, match="max_kv_bytes"):
        engines(max_kv_bytes=100_000).submit(query(PROMPTS[0], max_tokens=10**6))


def test_an_engine_loads_by_directory(random_model_dir: Path) -> None:
    with Engine.load(random_model_dir) as engine:
        assert engine.generate([query(PROMPTS[0], max_tokens=1)])[0].prompt_tokens == len(PROMPTS[0])
