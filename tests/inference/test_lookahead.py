"""Lookahead changes when things are computed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import zoo
from asking import query
from test_engine import close

from inference import Completion, Engine, Request
from inference.engine import flight
from inference.engine.guessing import guess
from inference.engine.sampling import CheckedParams, draw
from inference.forward import Fed

RNG = np.random.default_rng(8)
RULES = RNG.integers(1, 95, 20).tolist()
KINDS = ["gemma3_text", "qwen3_next"]  # sliding windows; recurrent states

Pair = tuple[Engine, Engine]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The same engine without lookahead and with it."""
    model = zoo.build(request.param)
    with Engine(model, None, max_rows=9, lookahead="off") as off, Engine(model, None, max_rows=9, lookahead="on") as on:
        assert (off.lookahead, on.lookahead) == (False, True)
        for engine in (off, on):
            publish(engine, 1)
        yield off, on


def publish(engine: Engine, version: int, mode: Any = "pin") -> None:
    weights = zoo.adapter(engine._bank.shapes, seed=version, rank=2)
    engine.publish("a", weights, scale=1.0, version=version, mode=mode)


def mixed(count: int) -> list[Request]:
    """Short and long, greedy and not, alike and not, some with an adapter, some that only the host can draw for."""
    rng = np.random.default_rng(count)
    requests = []
    for i in range(count):
        prompt = RULES * int(rng.integers(2)) + rng.integers(1, 95, int(rng.integers(1, 8))).tolist()
        requests.append(
            query(
                RULES if i % 5 == 0 else prompt,
                int(rng.integers(3, 10)),
                seed=i,
                temperature=float(rng.choice([0.0, 0.7, 1.0, 2.0])),
                top_p=float(rng.choice([1.0, 0.8])),
                top_k=int(rng.choice([0, 12])),
                stop_ids=frozenset({3, 5, 7}),
                adapter="a" if i % 3 == 0 else None,
                park=i % 4 == 1,
                allowed=[(1, 2, 3), (1, 4)] if i % 41 == 40 else None,
            )
        )
    return requests


def storm(engine: Engine, requests: list[Request]) -> tuple[dict[int, Completion], set[int]]:
    """Requests join in bursts between steps, every ninth may be aborted, and the adapter is swapped ten times."""
    rng = np.random.default_rng(0)
    waiting, done, aborted, version = list(requests), dict[int, Completion](), set[int](), 1
    first = engine._next_id
    while waiting or engine.busy:
        for _ in range(int(rng.integers(0, 9)) if waiting else 0):
            if waiting:
                number = engine.submit(waiting.pop(0)) - first
                if len(waiting) % 20 == 0:
                    publish(engine, version := version + 1)
                if number % 9 == 8:
                    aborted.add(number)
        for number in aborted:
            if number + first in engine._tickets and rng.random() < 0.2:
                engine.abort(number + first)
        done.update((c.request_id - first, c) for c in engine.step())
    engine.unpublish("a")
    publish(engine, 1)
    return done, aborted


@pytest.mark.quick(KINDS[0])
def test_two_hundred_requests_that_come_and_go_get_the_same(pair: Pair) -> None:
    for engine in pair:
        engine.drop_caches()
    count = 60 if pair[0]._runner.forward.pads else 200
    (expected, aborted), (found, _) = (storm(engine, mixed(count)) for engine in pair)
    assert expected.keys() == found.keys() == set(range(count)) and aborted
    for number, one in expected.items():
        other = found[number]
        if number in aborted:
            count = min(len(one.tokens), len(other.tokens))
            assert one.tokens[:count] == other.tokens[:count] and one.adapter_digest == other.adapter_digest
        else:
            assert close(one, other) and one.policy_version == other.policy_version
            assert one.adapter_digest == other.adapter_digest
    off, on = pair
    assert on._stepper._flight is None and not on._tickets and not on._scheduler.rows
    assert on._stepper.kv.nbytes == off._stepper.kv.nbytes
    assert {info.running for info in on.adapters().values()} == {0} and len(on._bank._used) == len(off._bank._used)


def test_rows_that_stay_together_get_the_same_to_the_last_bit(pair: Pair) -> None:
    requests = [
        query([*RULES, i], 12, seed=i, temperature=t, stop_ids=frozenset()) for i, t in enumerate([0, 1, 1, 0.5])
    ]
    for engine in pair:
        engine.drop_caches()
    off, on = (engine.generate(requests) for engine in pair)
    for a, b in zip(off, on):
        assert (a.tokens, a.logprobs, a.sampled_logprobs) == (b.tokens, b.logprobs, b.sampled_logprobs)


def test_a_swap_in_mid_sequence_is_seen_by_the_same_tokens(pair: Pair) -> None:
    """The pass in the air was computed under the old version, so nothing of it is used."""
    results = []
    for engine in pair:
        engine.drop_caches()
        ids = [engine.submit(query([*RULES, i], 9, seed=i, adapter="a", stop_ids=frozenset())) for i in range(4)]
        for _ in range(3):
            engine.step()
        publish(engine, 2, "keep")
        done: dict[int, Completion] = {}
        while engine.busy:
            done.update((c.request_id, c) for c in engine.step())
        results.append([done[i] for i in ids])
        engine.unpublish("a")
        publish(engine, 1)
    for a, b in zip(*results):
        assert close(a, b) and a.token_versions == b.token_versions == [1] * 3 + [2] * 6


def test_a_prompt_in_the_air_starts_over_under_the_version_that_takes_over(pair: Pair) -> None:
    """It began with a kept beginning of the old version, which was then parked as one of the new."""
    _, engine = pair
    engine.drop_caches()
    options: dict[str, Any] = {"seed": 2, "adapter": "a", "stop_ids": frozenset()}
    engine.generate([query([*RULES, i], 3, **options, park=True) for i in range(2)])
    engine.submit(query([3, 4, 5], 6, seed=1, stop_ids=frozenset()))
    engine.step()
    number = engine.submit(prompt := query([*RULES, 0, 7, 8], 4, **options, park=True))
    engine.step()
    assert any(row.pos and not row.tokens for row in engine._scheduler.rows)
    publish(engine, 2, "keep")
    done: dict[int, Completion] = {}
    while engine.busy:
        done.update((c.request_id, c) for c in engine.step())
    [later] = engine.generate([goes_on := query([*prompt.prompt, *done[number].tokens, 9], 3, **options)])
    assert later.cached_tokens == len(prompt.prompt) + 3 and done[number].cached_tokens == 0
    for request, found in ((prompt, done[number]), (goes_on, later)):
        engine.drop_caches()
        [clean] = engine.generate([request])
        assert close(found, clean) and found.policy_version == 2 and found.token_versions is None
    engine.unpublish("a")
    publish(engine, 1)


def test_a_conversation_that_is_parked_goes_on(pair: Pair) -> None:
    turns = []
    for engine in pair:
        engine.drop_caches()
        firsts = engine.generate([query([*RULES, i], 6 + i, seed=i, stop_ids=frozenset(), park=True) for i in range(4)])
        history = [[*RULES, i, *c.tokens, 9] for i, c in enumerate(firsts)]
        turns.append([engine.generate([query(h, 5, seed=9, stop_ids=frozenset())])[0] for h in history])
        assert all(c.cached_tokens >= len(RULES) + 6 for c in turns[-1])
    assert all(close(a, b) and a.cached_tokens == b.cached_tokens for a, b in zip(*turns))


def test_a_conversation_is_parked_while_another_goes_on_from_it(pair: Pair) -> None:
    results = []
    for engine in pair:
        engine.drop_caches()
        options = {"seed": 4, "stop_ids": frozenset[int]()}
        one, other = engine.generate([query(RULES, 4, park=True, **options), query(RULES, 9, **options)])
        assert other.tokens[:4] == one.tokens
        [later] = engine.generate([query([*RULES, *one.tokens, 9], 5, **options)])
        assert later.cached_tokens == len(RULES) + 3
        results.append([one, other, later])
    assert all(close(a, b) for a, b in zip(*results))


def test_wrong_guesses_cost_time_and_nothing_else(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third guess of the device is another token, as if rounding had decided."""
    off, on = pair
    requests = [query([*RULES, i], 10, seed=i, stop_ids=frozenset()) for i in range(6)]
    for engine in pair:
        engine.drop_caches()
    expected, steps = off.generate(requests), 0

    def wrong(logits: mx.array, *arguments: Any) -> mx.array:
        nonlocal steps
        steps += 1
        shift = mx.array([int((i + steps) % 3 == 0) for i in range(logits.shape[0])])
        return (guess(logits, *arguments) + shift) % logits.shape[1]

    monkeypatch.setattr(flight, "guess", wrong)
    monkeypatch.setattr(on._stepper, "_recover", lambda error: pytest.fail(f"rows were started over: {error}"))
    assert all(close(a, b) for a, b in zip(expected, on.generate(requests)))
    assert steps > 12


@pytest.mark.parametrize("fault", ["raises", "nan"])
def test_a_fault_ends_only_the_requests_that_cause_it(pair: Pair, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    off, on = pair
    requests = [query([*RULES, i], 8, seed=i, stop_ids=frozenset()) for i in range(6)]
    for engine in pair:
        engine.drop_caches()
    expected = off.generate(requests)
    bad = next(token for token in expected[0].tokens[1:-1] if token not in RULES and token > 6)
    submit, call = on._runner.forward.submit, type(on._runner.forward).__call__

    def hit(tokens: Any) -> Any:
        return (np.array(tokens) == bad).any(axis=1)

    def faulty(kv: Any, fed: Fed) -> Any:
        if fault == "raises" and hit(fed.tokens).any():
            raise RuntimeError("cannot digest this")
        out = submit(kv, fed)
        return mx.where(mx.array(hit(fed.tokens))[:, None], mx.nan, out) if out.size else out

    def alone(self: Any, kv: Any, fed: Fed) -> Any:
        if hit(fed.tokens).any():
            raise RuntimeError("cannot digest this")
        return call(self, kv, fed)

    monkeypatch.setattr(on._runner.forward, "submit", faulty)
    monkeypatch.setattr(type(on._runner.forward), "__call__", alone)
    ended = 0
    for completion, whole in zip(on.generate(requests), expected):
        if bad in whole.tokens[:-1]:
            ended += 1
            assert completion.finish_reason == "error" and completion.error
            assert completion.tokens == whole.tokens[: whole.tokens.index(bad) + 1]
        else:
            assert close(completion, whole)
    assert 0 < ended < 6 and on._stepper._flight is None


def test_the_host_waits_once_a_step_and_for_the_pass_before(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, on = pair
    on.drop_caches()
    waits: list[str] = []
    submitted = 0
    fetch, add = flight.on_host, flight.Flight.add

    def watched_fetch(array: mx.array) -> Any:
        waits.append(f"{array.ndim}d after {submitted} passes")
        return fetch(array)

    def watched_add(self: flight.Flight, *arguments: Any) -> None:
        nonlocal submitted
        submitted += 1
        add(self, *arguments)

    def forbidden(name: str) -> Any:
        return lambda *arguments: pytest.fail(f"the host waited for the device: {name}")

    for request in [query([*RULES, i], 9, seed=i, stop_ids=frozenset()) for i in range(4)]:
        on.submit(request)
    monkeypatch.setattr(flight.Flight, "add", watched_add)
    on.step()
    monkeypatch.setattr(flight, "on_host", watched_fetch)
    monkeypatch.setattr(mx, "eval", forbidden("mx.eval"))
    monkeypatch.setattr(mx, "synchronize", forbidden("mx.synchronize"))
    for name in ("item", "tolist", "__bool__", "__int__", "__float__"):
        with suppress(TypeError):  # MLX's build for Python 3.15 does not let anyone change its type
            monkeypatch.setattr(mx.array, name, forbidden(name))
    for step in range(2, 8):
        waits.clear()
        on.step()
        # The logits and the guesses of this step's pass; by then the next one is on its way, too.
        assert waits == [f"2d after {step + 1} passes", f"1d after {step + 1} passes"]
    monkeypatch.undo()
    on.abort_all()
    assert [c.finish_reason for c in on.step()] == ["aborted"] * 4 and on._stepper._flight is None


def test_guesses_are_right(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that no one shares lose a member when they end, and else never."""
    confirm, lost = flight.Flight.confirm, 0

    def counted(self: flight.Flight, before: flight.Flight, rows: Any, *others: Any) -> bool:
        nonlocal lost
        found = confirm(self, before, rows, *others)
        lost += len(rows) - sum(member.row is not None for member in self.members)
        return found

    monkeypatch.setattr(flight.Flight, "confirm", counted)
    pair[1].drop_caches()
    pair[1].generate([query([*RULES, i], 8 + i % 3, seed=i, stop_ids=frozenset({3, 5, 7})) for i in range(9)])
    assert lost == 0


def test_the_device_guesses_what_the_host_draws() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(400, 64)).astype(np.float32) * 3
    params = [
        CheckedParams(
            max_tokens=1,
            stop_ids=frozenset(),
            temperature=float(rng.choice([0.0, 0.5, 1.0, 2.0])),
            top_k=int(rng.choice([0, 1, 5, 100])),
            top_p=float(rng.choice([0.3, 0.9, 1.0])),
            min_p=float(rng.choice([0.0, 0.1, 1.0])),
        )
        for _ in logits
    ]
    numbers = rng.random(400)
    drawn = [int(d.tokens[0]) for d in draw(logits, params, list(numbers[:, None]))]
    assert guess(mx.array(logits), params, numbers).tolist() == drawn
    nonsense = guess(mx.full((2, 64), mx.nan), params[:2], numbers[:2]).tolist()
    assert all(0 <= token < 64 for token in nonsense)


def test_paths_that_compute_at_once_have_nothing_to_look_ahead_for(random_model: tuple[Any, Any]) -> None:
    with Engine(*random_model, lookahead="on") as engine:
        assert engine.path == "numpy" and not engine.lookahead
    with pytest.raises(ValueError, match="lookahead must be one of auto, on, off; got 'yes'"):
        Engine(*random_model, lookahead="yes")  # type: ignore[arg-type]
