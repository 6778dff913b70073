"""Several servers as one: every request is answered once, by the right weights, whatever the servers do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from inference import Completion, Fleet, Incompatible, InferenceError, Request, RequestRefused, ServerUnavailable
from inference.client import completions
from inference.client.endpoint import Endpoint
from inference.client.retry import Retry
from tests.inference.asking import query
from tests.inference.stub import (
    Fault,
    Stub,
    changed,
    forgets,
    hang_up,
    missing_choice,
    other_model,
    stall,
    status,
    stubs,
    tokens_for,
)

QUICK = Retry(attempts=1000, first=0.01, most=0.05, budget=5.0)
PATH = "model.layers.0.self_attn.q_proj"


def weights(seed: int) -> dict[str, mx.array]:
    return {f"{PATH}.lora_a": mx.ones((4, 2)) * seed, f"{PATH}.lora_b": mx.ones((2, 4))}


class Asked:
    """A fleet, and what it has delivered."""

    def __init__(self, servers: Sequence[Stub], **options: Any) -> None:
        self.got: list[tuple[int, Completion | InferenceError]] = []
        self.fleet = Fleet(
            [server.url for server in servers],
            lambda number, answer: self.got.append((number, answer)),
            **{"retry": QUICK, "patience": 20.0, "timeout": 1.0, "vocab": 5000, **options},
        )

    async def answers(self, requests: Sequence[Request], adapter: str | None = None) -> dict[int, Any]:
        """Sends requests off and waits until each has its answer, and a little longer."""
        self.got.clear()
        self.fleet.submit([(number, request, adapter) for number, request in enumerate(requests)])
        for _ in range(3000):
            if len(self.got) >= len(requests):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        counts = Counter(number for number, _ in self.got)
        assert counts == dict.fromkeys(range(len(requests)), 1), "every request is answered once"
        return dict(self.got)


def using(servers: Sequence[Stub], work: Callable[[Asked], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        asked = Asked(servers, **options)
        try:
            await asked.fleet.start()
            await work(asked)
        finally:
            await asked.fleet.close()

    asyncio.run(run())


GAMES = [query((5, 6, n), max_tokens=4, seed=n, stop_ids=frozenset((2,))) for n in range(40)]


def right(answers: dict[int, Any], model: str = "base", games: Sequence[Request] = GAMES) -> None:
    for number, game in enumerate(games):
        answer = answers[number]
        assert isinstance(answer, Completion), answer
        assert answer.tokens == tokens_for(list(game.prompt), model) and answer.finish_reason == "stop"


def test_prompts_travel_together_and_come_back_in_their_places() -> None:
    async def work(asked: Asked) -> None:
        right(await asked.answers(GAMES))
        assert [len(body["prompt"]) for body in server.asked] == [40] and "seed" not in server.asked[0]
        await asked.answers([query((1,), max_tokens=n, seed=0) for n in (4, 4, 5, 2048, 2048)])
        assert sorted(len(body["prompt"]) for body in server.asked[1:]) == [1, 1, 1, 2]

    with stubs(1) as [server]:
        using([server], work)


def test_a_server_that_does_not_answer_yet_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    retry = Retry(attempts=1000, first=0.01, most=0.05, budget=0.2)
    fleet = Fleet(["http://127.0.0.1:9"], lambda number, answer: None, retry=retry)
    with pytest.raises(InferenceError, match="cannot be reached"):
        asyncio.run(fleet.start())
    assert [r.getMessage()[:62] for r in caplog.records if r.name == "inference.client.fleet"] == [
        "waiting for up to 0 s: http://127.0.0.1:9 cannot be reached (C"
    ]


@pytest.mark.quick
@pytest.mark.parametrize(
    "fault",
    [
        status(429), status(500), status(502), status(503), status(404, "Not Found"), hang_up, stall, missing_choice,
        other_model, changed(token_ids=[1.5]), changed(logprobs=None), changed(logprobs={"token_logprobs": [-1.0]}),
        changed(finish_reason="abort"), changed(prompt_token_ids=[9]), changed(index=3), changed(token_ids=[7] * 3),
        changed(logprobs={"token_logprobs": [0.5, -1.0, -1.0]}), forgets, changed(token_ids=[10**9, 2]),
        changed(logprobs={"token_logprobs": [-(10**400), -1.0, -1.0]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 2])
def test_what_goes_wrong_once_costs_no_game_and_brings_none_twice(fault: Fault, count: int, tmp_path: Path) -> None:
    async def work(asked: Asked) -> None:
        publication = asked.fleet.adapters.prepare("run.policy", weights(1), 2.0, 3)
        asked.fleet.adapters.publish(publication)
        answers = await asked.answers(GAMES, publication.name)
        servers[0].faults = [fault]
        again = await asked.answers(GAMES, publication.name)
        assert not servers[0].faults, "the fault has happened"
        for one in (answers, again):
            right(one, publication.name)
            assert {(a.policy_version, a.adapter_digest) for a in one.values()} == {(3, publication.packed.digest)}

    with stubs(count) as servers:
        using(servers, work, shelf=tmp_path)


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (status(400, "no such option"), RequestRefused, "no such option"),
        (status(401), RequestRefused, "401"),
        (status(409, "another version"), RequestRefused, "another version"),
        (status(500, "the engine failed"), RequestRefused, "the engine failed"),
        (status(503), ServerUnavailable, "no server is usable|503"),
        (other_model, InferenceError, "answered by 'another'|no server is usable"),
        (changed(prompt_token_ids=[1]), InferenceError, "another prompt|no server is usable"),
    ],
)
def test_what_stays_wrong_ends_the_request_with_its_reason(fault: Fault, error: type, text: str) -> None:
    async def work(asked: Asked) -> None:
        server.always = fault
        for answer in (await asked.answers(GAMES[:3])).values():
            with pytest.raises(error, match=text):
                raise answer

    with stubs(1) as [server]:
        using([server], work, patience=0.3)


def test_one_bad_request_is_refused_and_its_neighbours_are_answered() -> None:
    """The server refuses the whole call; which of its requests is to blame shows when each travels alone."""

    def picky(stub: Stub, body: dict[str, Any]) -> Any:
        return (400, {"error": {"message": "too long"}}) if any(6 in prompt[2:] for prompt in body["prompt"]) else None

    async def work(asked: Asked) -> None:
        server.always = picky
        answers = await asked.answers(GAMES)
        with pytest.raises(RequestRefused, match="too long"):
            raise answers.pop(6)
        right({**answers, 6: (await asked.answers(GAMES[:1]))[0]}, games=[*GAMES[:6], GAMES[0], *GAMES[7:]])
        assert max(len(body["prompt"]) for body in server.asked) == 40

    with stubs(1) as [server]:
        using([server], work)


def test_parameters_that_cannot_be_sent_are_refused_alone() -> None:
    async def work(asked: Asked) -> None:
        wrong = query((5, 6), max_tokens=4, stop=["x"])  # type: ignore[arg-type]
        answers = await asked.answers([GAMES[0], wrong, GAMES[1]])
        with pytest.raises(RequestRefused, match="stop must be a tuple of texts"):
            raise answers.pop(1)
        right({0: answers[0], 1: answers[2]}, games=GAMES[:2])

    with stubs(1) as [server]:
        using([server], work)


def test_a_call_is_no_longer_than_a_server_reads() -> None:
    """Long prompts with short answers: by answers alone, 128 of them would share a call."""
    long = [query((*range(2000), n), max_tokens=4, seed=n) for n in range(120)]

    async def work(asked: Asked) -> None:
        answers = await asked.answers([*long, query(range(150_000), max_tokens=4)])
        assert all(isinstance(answer, Completion) for answer in answers.values())
        sizes = [sum(map(len, body["prompt"])) for body in server.asked]
        assert max(sizes) == 150_000 and sorted(sizes)[-2] <= completions.CALL_PROMPT_TOKENS and len(sizes) < 6

    with stubs(1) as [server]:
        using([server], work, timeout=20.0, vocab=None)


def test_prompts_may_be_arrays() -> None:
    async def work(asked: Asked) -> None:
        answers = await asked.answers([Request(np.array(game.prompt), game.sampling) for game in GAMES])
        right(answers)

    with stubs(1) as [server]:
        using([server], work)


def test_requests_that_are_cancelled_at_once_leave_their_room() -> None:
    """A call that is cancelled before it began gives back its room; after 256 of them nothing was asked any more."""

    async def work(asked: Asked) -> None:
        for number in range(300):
            asked.fleet.submit([(1000 + number, GAMES[0], None)])
            asked.fleet.cancel(1000 + number)
        await asyncio.sleep(0.05)
        assert asked.fleet.endpoints[0].outstanding == 0
        right(await asked.answers(GAMES))

    with stubs(1) as [server]:
        using([server], work)


def test_a_server_that_is_lost_and_one_that_comes_back() -> None:
    async def work(asked: Asked) -> None:
        right(await asked.answers(GAMES))
        one.stop()
        right(await asked.answers(GAMES))
        assert not asked.fleet.endpoints[0].usable
        one.start()
        for _ in range(300):
            if asked.fleet.endpoints[0].usable:
                break
            await asyncio.sleep(0.01)
        before = one.answered
        right(await asked.answers(GAMES))
        assert one.answered > before, "it is used again"

    with stubs(2) as [one, two]:
        using([one, two], work)


def test_a_server_that_comes_back_with_another_model_stays_out_until_it_has_the_first_again() -> None:
    async def work(asked: Asked) -> None:
        endpoint = asked.fleet.endpoints[0]
        right(await asked.answers(GAMES))
        one.stop()
        right(await asked.answers(GAMES))
        one.weights, before = "/models/other", one.answered
        one.start()
        for _ in range(300):
            if "another model" in str(endpoint.error):
                break
            await asyncio.sleep(0.01)
        for _ in range(20):  # many times the wait between attempts
            await asyncio.sleep(0.05)
            assert not endpoint.usable and "another model" in str(endpoint.error)
        right(await asked.answers(GAMES))
        assert one.answered == before
        one.weights = "/models/base"
        for _ in range(300):
            if endpoint.usable:
                break
            await asyncio.sleep(0.01)
        right(await asked.answers(GAMES))
        assert one.answered > before

    with stubs(2) as [one, two]:
        using([one, two], work)


@pytest.mark.slow
def test_a_slow_server_is_asked_for_less_until_it_is_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty times as slow by the clock that the fleet reads, so that what else this machine does decides nothing."""
    slow, measured = set[str](), list[float]()
    took = Endpoint.took

    def timed(endpoint: Endpoint, seconds: float, tokens: int) -> None:
        measured.append(seconds)
        took(endpoint, 0.5 if endpoint.url in slow else 0.01, tokens)

    monkeypatch.setattr(Endpoint, "took", timed)

    async def work(asked: Asked) -> None:
        async def shares() -> tuple[int, int]:
            before = one.answered, two.answered
            for _ in range(2):
                await asked.answers([query((5, n), max_tokens=2048, seed=n) for n in range(30)])
            return one.answered - before[0], two.answered - before[1]

        slow.add(asked.fleet.endpoints[0].url)
        few, many = await shares()
        assert few < 0.5 * many, (few, many)
        slow.clear()
        for _ in range(3):  # what it is still asked shows that it is quick again
            await shares()
        again, other = await shares()
        assert again > 0.7 * other, (again, other)
        assert min(measured) > 0

    with stubs(2) as [one, two]:
        using([one, two], work, timeout=20.0, patience=20.0)


def test_a_conversation_stays_at_its_server_and_carries_its_id_to_a_router(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "took", lambda *told: None)  # both as fast, whatever else this machine does

    def turns(length: int) -> list[Request]:
        from dataclasses import replace

        prompts = [(number, *range(length)) for number in range(40)]
        return [replace(query(p, max_tokens=4, seed=0), session=f"game {p[0]}") for p in prompts]

    async def at_home(asked: Asked) -> None:
        for length in (3, 5):
            await asked.answers(turns(length))
        homes: dict[int, set[int]] = {}
        for at, server in enumerate(both):
            for body in server.asked:
                for prompt in body["prompt"]:
                    homes.setdefault(prompt[0], set()).add(at)
        assert all(len(places) == 1 for places in homes.values()) and len(set.union(*homes.values())) == 2

    async def by_id(asked: Asked) -> None:
        for length in (3, 5):
            await asked.answers(turns(length))
        ids: dict[int, set[str]] = {}
        for body in both[0].asked[before:]:
            for prompt in body["prompt"]:
                ids.setdefault(prompt[0], set()).add(body["session"])
        assert all(len(found) == 1 for found in ids.values()) and len(set.union(*ids.values())) == 8

    with stubs(2) as both:
        using(both, at_home)
        before = len(both[0].asked)
        using(both[:1], by_id, sessions=8)


@pytest.mark.parametrize("way", ["pull", "push"])
def test_adapters_are_published_the_way_the_server_has_and_taken_away(way: str, tmp_path: Path) -> None:
    async def work(asked: Asked) -> None:
        fleet = asked.fleet
        old, new = (fleet.adapters.prepare("run.policy", weights(n), 2.0, n) for n in (1, 2))
        fleet.adapters.publish(old)
        right(await asked.answers(GAMES, old.name), old.name)
        assert fleet.endpoints[0].way == way
        fleet.adapters.publish(new)
        fleet.adapters.retire(old.name)
        right(await asked.answers(GAMES, new.name), new.name)
        assert [folder.name for folder in tmp_path.iterdir()] == [new.name]
        assert way == "pull" or old.name in server.unloaded
        await fleet.adapters.clear("run.")
        assert not list(tmp_path.iterdir())

    with stubs(1, tmp_path if way == "pull" else None, updating=way == "push") as [server]:
        using([server], work, shelf=tmp_path)


def test_a_server_that_takes_no_adapters_is_told_apart_with_what_it_lacks(tmp_path: Path) -> None:
    async def work(asked: Asked) -> None:
        publication = asked.fleet.adapters.prepare("run.policy", weights(1), 2.0, 1)
        asked.fleet.adapters.publish(publication)
        for answer in (await asked.answers(GAMES[:2], publication.name)).values():
            with pytest.raises(Incompatible, match=r"takes no adapters.*VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
                raise answer

    with stubs(1, updating=False) as [server]:
        using([server], work, shelf=tmp_path)
        using([server], work)


def test_a_cancelled_request_is_not_delivered() -> None:
    async def work(asked: Asked) -> None:
        server.faults = [stall]
        asked.fleet.submit([(0, GAMES[0], None)])
        await asyncio.sleep(0.05)
        asked.fleet.cancel(0)
        await asyncio.sleep(0.2)
        assert asked.got == []
        right(await asked.answers(GAMES))

    with stubs(1) as [server]:
        using([server], work)


def test_an_adapter_that_was_there_already_does_not_mean_that_the_server_pulls(tmp_path: Path) -> None:
    async def work(asked: Asked) -> None:
        old, new = (asked.fleet.adapters.prepare("run.policy", weights(n), 2.0, n) for n in (1, 2))
        server.loaded.add(old.name)
        for one in (old, new):
            asked.fleet.adapters.publish(one)
            right(await asked.answers(GAMES, one.name), one.name)

    with stubs(1) as [server]:
        using([server], work, shelf=tmp_path)
