"""Stop texts, bias, allowed answers, streaming and parked conversations; and the ways to publish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from asking import change, query
from test_engine import PROMPTS, close

from inference import Engine, Request, SamplingParams
from inference.engine.checks import Checks
from inference.engine.prefix_cache import MIN_PREFIX, PrefixCache

LONG = [5 + (37 * i) % 250 for i in range(60)]
MakeAdapter = Callable[..., dict[str, mx.array]]


@pytest.fixture
def engine(random_model: tuple[Any, Any]) -> Iterator[Engine]:
    with Engine(*random_model) as made:
        yield made


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_stop_text_ends_a_completion_where_it_first_appears(engine: Engine) -> None:
    plain = query(PROMPTS[0], max_tokens=30, seed=1, stop_ids=frozenset())
    [free] = engine.generate([plain])
    decode = engine.tokenizer.decode
    text = decode(free.tokens)
    stop = text[12:15]
    [ended] = engine.generate([change(plain, stop=("never said", stop))])
    assert ended.finish_reason == "stop" and stop in decode(ended.tokens)
    assert stop not in decode(ended.tokens[:-1])
    assert ended.tokens == free.tokens[: len(ended.tokens)]


def test_requests_of_one_prompt_stop_each_by_its_own_text(engine: Engine) -> None:
    """They share a row until one of them ends."""
    plain = query(PROMPTS[0], max_tokens=20, temperature=0.0, stop_ids=frozenset())
    [free] = engine.generate([plain])
    text = engine.tokenizer.decode(free.tokens)
    first, second, none = engine.generate([change(plain, stop=(text[3:5],)), change(plain, stop=(text[8:12],)), plain])
    assert len(first.tokens) <= len(second.tokens) < len(none.tokens) == 20
    assert none.tokens == free.tokens


def test_bias_moves_what_is_drawn_and_not_what_is_reported(engine: Engine) -> None:
    plain = query(PROMPTS[1], max_tokens=1, seed=0, stop_ids=frozenset())
    [banned] = engine.generate([change(plain, temperature=0.0)])
    token = banned.tokens[0]
    done = engine.generate([change(plain, seed=i, logit_bias={token: -1e9, 17: 3.0}) for i in range(50)])
    assert all(c.tokens[0] != token for c in done)
    logits = engine.next_logits([PROMPTS[1]])[0].astype(float)
    logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    biased = logits.copy()
    biased[token] -= 1e9
    biased[17] += 3.0
    sampled = biased - np.log(np.exp(biased - biased.max()).sum()) - biased.max()
    for c in done:
        assert c.logprobs[0] == pytest.approx(logprobs[c.tokens[0]], abs=1e-4)
        assert c.sampled_logprobs[0] == pytest.approx(sampled[c.tokens[0]], abs=1e-4)


def test_allowed_answers_have_their_renormalised_probabilities(engine: Engine) -> None:
    end = 2
    answers = [(20, 21, end), (20, 22, end), (30, end)]
    request = query(PROMPTS[2], max_tokens=8, allowed=answers)
    done = engine.generate([change(request, seed=i) for i in range(400)])
    assert all(c.finish_reason == "stop" and tuple(c.tokens) in answers for c in done)
    first = engine.next_logits([PROMPTS[2]])[0].astype(float)
    second = engine.next_logits([[*PROMPTS[2], 20]])[0].astype(float)
    share = 1 / (1 + np.exp(first[30] - first[20]))
    expected = {answers[2]: 1 - share}
    other = 1 / (1 + np.exp(second[22] - second[21]))
    expected |= {answers[0]: share * other, answers[1]: share * (1 - other)}
    counts = Counter(tuple(c.tokens) for c in done)
    for answer, probability in expected.items():
        assert abs(counts[answer] / 400 - probability) < 4 * (probability * (1 - probability) / 400) ** 0.5 + 1e-3
        said = next((c for c in done if tuple(c.tokens) == answer), None)
        if said is not None:
            assert sum(said.sampled_logprobs) == pytest.approx(np.log(probability), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allowed": []}, "allowed is empty"),
        ({"allowed": [(20, 21), (20, 21, 2)]}, "is the beginning of"),
        ({"allowed": [(999999,)]}, "holds token id 999999"),
        ({"allowed": [tuple(range(5, 50))]}, "at most 16 are generated"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias must map"),
        ({"logit_bias": {5: float("nan")}}, "logit_bias must map"),
        ({"logit_bias": {"x": 1.0}}, "logit_bias must map"),
        ({"stop": ("",)}, "stop must be a tuple"),
        ({"stop": ("x" * 1000,)}, "stop must be a tuple"),
        ({"stop": tuple("abcdefghijklmnopqrst")}, "stop must be a tuple"),
        ({"stop": (5,)}, "stop must be a tuple"),
    ],
)
def test_wrong_options_are_refused(engine: Engine, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine.submit(query(PROMPTS[0], max_tokens=16, **change))
    assert not engine.busy


def test_streamed_tokens_are_those_of_the_completion(engine: Engine) -> None:
    """For requests that share a row, wait as branches, and end by different rules."""
    plain = query(PROMPTS[0], max_tokens=7, stop_ids=frozenset(), stream=True, top_logprobs=2)
    requests = [change(plain, seed=i % 5, max_tokens=3 + i % 5, stream=i != 4) for i in range(12)]
    ids = [engine.submit(request) for request in requests]
    seen: dict[int, list[int]] = {i: [] for i in ids}
    logprobs: dict[int, list[float]] = {i: [] for i in ids}
    done = {}
    steps = 0
    while engine.busy:
        done.update({c.request_id: c for c in engine.step()})
        steps += 1
        for delta in engine.deltas():
            assert len(delta.tokens) == len(delta.logprobs) == len(delta.top_logprobs or ())
            seen[delta.request_id] += delta.tokens
            logprobs[delta.request_id] += delta.logprobs
        if steps == 2:
            assert all(len(seen[i]) == 2 for i in ids if i != 4)  # as they come, not at the end
    assert seen.pop(4) == [] and logprobs.pop(4) == []
    for i in seen:
        assert seen[i] == done[i].tokens and logprobs[i] == done[i].logprobs
    assert engine.deltas() == []


def test_a_parked_conversation_is_not_computed_again(engine: Engine) -> None:
    first = query(LONG, max_tokens=10, seed=3, stop_ids=frozenset(), park=True)
    [a] = engine.generate([first])
    again = [*LONG, *a.tokens, 9, 10, 11]
    [cold] = engine.generate([query(again, max_tokens=5, seed=4, stop_ids=frozenset())])
    assert cold.cached_tokens == len(LONG) + len(a.tokens) - 1
    engine.drop_caches()
    [fresh] = engine.generate([query(again, max_tokens=5, seed=4, stop_ids=frozenset())])
    assert fresh.cached_tokens == 0 and close(cold, fresh)


def test_parked_conversations_of_one_prompt_are_told_apart(engine: Engine) -> None:
    requests = [query(LONG, max_tokens=6, seed=i, stop_ids=frozenset(), park=True) for i in range(6)]
    done = engine.generate(requests)
    for completion in done:
        nxt = query([*LONG, *completion.tokens, 7], max_tokens=4, seed=1, stop_ids=frozenset())
        [warm] = engine.generate([nxt])
        assert warm.cached_tokens == len(LONG) + 5
        with Engine(engine.model, engine.tokenizer) as cold:
            assert close(warm, cold.generate([nxt])[0])


# --- the index of beginnings -----------------------------------------------------------------------------------------


def snapshot(size: int) -> Any:
    return [(np.zeros(size, np.float32), np.zeros(size, np.float32))]


def test_index_finds_what_a_search_through_all_entries_finds() -> None:
    rng = np.random.default_rng(0)
    cache, stored = PrefixCache(1 << 30), []
    for _ in range(300):
        base = list(stored[rng.integers(len(stored))][1]) if stored and rng.random() < 0.7 else []
        ids = base[: rng.integers(len(base) + 1)] + rng.integers(0, 3, rng.integers(16, 60)).tolist()
        digest = "ab"[rng.integers(2)]
        cache.put(digest, ids, snapshot(4))
        stored = [(d, s) for d, s in stored if not (d == digest and ids[: len(s)] == list(s))] + [(digest, tuple(ids))]
        probe = ids[: rng.integers(1, len(ids) + 1)] + rng.integers(0, 3, 5).tolist()
        entry, length = cache.longest(digest, probe)
        shared = [min(_common(s, probe), len(probe) - 1) for d, s in stored if d == digest]
        assert len(cache) == len(set(stored)) and length <= max(shared)
        # Entries that agree in their last indexed block may be too many to compare, so a few tokens can be missed.
        assert length // MIN_PREFIX == max(shared) // MIN_PREFIX
        assert entry is None or tuple(entry.tokens[:length]) == tuple(probe[:length])


def _common(a: Any, b: Any) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def test_the_budget_drops_the_least_recently_used() -> None:
    cache = PrefixCache(3 * 32)
    for start in range(3):
        cache.put("a", [start] * 20, snapshot(4))
    assert cache.longest("a", [0] * 30)[1] == 20
    cache.put("a", [9] * 20, snapshot(4))
    assert [cache.longest("a", [i] * 30)[1] for i in (0, 1, 2, 9)] == [20, 0, 20, 20]
    assert cache.nbytes == 96
    cache.put("a", [7] * 20, snapshot(1000))
    assert len(cache) == cache.nbytes == 0 and not cache._index and not cache._ends


# --- publishing ------------------------------------------------------------------------------------------------------


def started(engine: Engine, make_adapter: MakeAdapter, steps: int = 3) -> tuple[Request, int]:
    engine.publish("a", make_adapter(1), scale=1.0, version=1)
    request = query(PROMPTS[0], max_tokens=8, seed=5, adapter="a", stop_ids=frozenset())
    number = engine.submit(request)
    for _ in range(steps):
        engine.step()
    return request, number


def finish(engine: Engine) -> dict[int, Any]:
    done = {}
    while engine.busy:
        done.update({c.request_id: c for c in engine.step()})
    return done


def test_keep_moves_running_requests_and_tags_their_tokens(engine: Engine, make_adapter: MakeAdapter) -> None:
    request, number = started(engine, make_adapter)
    waiting = engine.submit(change(request, seed=6))
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="keep")
    done = finish(engine)
    assert done[number].token_versions == [1] * 3 + [2] * 5 and done[number].policy_version == 2
    assert done[waiting].token_versions is None and done[waiting].policy_version == 2
    assert {info.running for info in engine.adapters().values()} == {0} and len(engine._bank._used) == 2
    pure, later = engine.generate([request, change(request, seed=6)])
    assert pure.tokens != done[number].tokens and later.tokens == done[waiting].tokens


def test_keep_moves_all_that_wait_with_one_prompt(engine: Engine, make_adapter: MakeAdapter) -> None:
    """They then wait as one; the first of them used to be forgotten, and its client waited for ever."""
    engine.publish("a", make_adapter(1), scale=1.0, version=1)
    first = engine.submit(query(PROMPTS[0], max_tokens=2, seed=1, adapter="a", stop_ids=frozenset()))
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="pin")
    second = engine.submit(query(PROMPTS[0], max_tokens=2, seed=2, adapter="a", stop_ids=frozenset()))
    engine.publish("a", make_adapter(3), scale=1.0, version=3, mode="keep")
    third = engine.submit(query(PROMPTS[0], max_tokens=2, seed=1, adapter="a", stop_ids=frozenset()))
    done = finish(engine)
    assert {number: c.policy_version for number, c in done.items()} == {first: 3, second: 3, third: 3}
    assert done[first].tokens == done[third].tokens


def test_wait_lets_the_old_ones_finish_first(engine: Engine, make_adapter: MakeAdapter) -> None:
    request, number = started(engine, make_adapter)
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="wait")
    later = engine.submit(change(request, max_tokens=2))  # it would be done first if it did not wait
    order = []
    while engine.busy:
        order += [(c.request_id, c.policy_version) for c in engine.step()]
    assert order == [(number, 1), (later, 2)]
    assert len(engine._bank._used) == 2


def test_wait_waits_for_those_that_the_version_before_waited_for(engine: Engine, make_adapter: MakeAdapter) -> None:
    request, number = started(engine, make_adapter)
    for version in (2, 3, 4):
        engine.publish("a", make_adapter(version), scale=1.0, version=version, mode="wait")
    later = engine.submit(change(request, max_tokens=2))
    order = []
    while engine.busy:
        order += [(c.request_id, c.policy_version) for c in engine.step()]
    assert order == [(number, 1), (later, 4)]


@pytest.mark.parametrize("mode", ["wait", "abort", "keep"])
def test_modes_are_about_every_version_that_still_runs(engine: Engine, make_adapter: MakeAdapter, mode: Any) -> None:
    """Requests that an earlier publication had pinned are unfinished requests of the name too."""
    request, first = started(engine, make_adapter)
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="pin")
    second = engine.submit(change(request, max_tokens=2))
    engine.publish("a", make_adapter(3), scale=1.0, version=3, mode=mode)
    third = engine.submit(change(request, max_tokens=1))
    order, reasons = [], {}
    while engine.busy:
        for one in engine.step():
            order.append(one.request_id)
            reasons[one.request_id] = (one.finish_reason, one.policy_version)
    if mode == "wait":
        assert order == [second, first, third] and reasons[third] == ("length", 3)
    elif mode == "abort":
        assert reasons == {first: ("aborted", 1), second: ("aborted", 2), third: ("length", 3)}
    else:
        assert reasons == {first: ("length", 3), second: ("length", 3), third: ("length", 3)}


def test_abort_ends_the_old_ones(engine: Engine, make_adapter: MakeAdapter) -> None:
    request, number = started(engine, make_adapter)
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="abort")
    later = engine.submit(request)
    done = finish(engine)
    assert (done[number].finish_reason, len(done[number].tokens)) == ("aborted", 3)
    assert (done[later].finish_reason, done[later].policy_version) == ("length", 2)


def test_an_unknown_mode_changes_nothing(engine: Engine, make_adapter: MakeAdapter) -> None:
    started(engine, make_adapter)
    with pytest.raises(ValueError, match="mode must be one of pin, keep, wait, abort"):
        engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="swap")  # type: ignore[arg-type]
    assert engine.adapters()["a"].version == 1


def test_a_conversation_of_two_versions_is_not_parked(engine: Engine, make_adapter: MakeAdapter) -> None:
    engine.publish("a", make_adapter(1), scale=1.0, version=1)
    engine.submit(query(LONG, max_tokens=8, adapter="a", stop_ids=frozenset(), park=True))
    for _ in range(3):
        engine.step()
    engine.publish("a", make_adapter(2), scale=1.0, version=2, mode="keep")
    [mixed] = finish(engine).values()
    [nxt] = engine.generate([query([*LONG, *mixed.tokens, 4], max_tokens=2, adapter="a", stop_ids=frozenset())])
    assert nxt.cached_tokens == 0


def test_allowed_sequences_are_checked_once_for_all_choices_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 choices of 4,096 sequences held the engine for seconds."""
    checks = Checks(vocab=300, context=64, eos_ids=frozenset(), has_tokenizer=False)
    checked = []
    prompt = Checks.prompt
    monkeypatch.setattr(Checks, "prompt", lambda self, *args: (checked.append(args[0]), prompt(self, *args))[1])
    allowed = ((256, 1), (1,), (255, 2), (2, 7), (2, 256))
    orders = {checks.sampling(SamplingParams(allowed=allowed, seed=seed), 3).allowed for seed in range(4)}
    assert orders == {tuple(sorted(allowed))} and len(checked) == 5
    with pytest.raises(ValueError, match="has 2 tokens; at most 1"):
        checks.sampling(SamplingParams(allowed=allowed, max_tokens=1), 3)
    growing: Any = [[1], [2]]
    assert checks.sampling(SamplingParams(allowed=growing), 3).allowed == ((1,), (2,))
    growing.append([3])
    assert checks.sampling(SamplingParams(allowed=growing), 3).allowed == ((1,), (2,), (3,))
