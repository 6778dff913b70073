"""Several endpoints: nothing is lost when one dies, conversations stay, publications reach all or take one out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from asking import change, query
from hypothesis import given, settings
from hypothesis import strategies as st
from live import LiveServer, serving, wait_until
from test_client import HELLO, LONG, over_http

from inference import (
    AdapterInfo,
    Completion,
    Engine,
    HttpClient,
    Incompatible,
    LocalClient,
    Pool,
    Request,
    RequestRefused,
    ServerUnavailable,
)
from inference.client.interface import ChatReply, ServerInfo
from inference.client.packing import PackedAdapter
from inference.client.publications import Publication, Publications
from inference.client.retry import Retry
from inference.types import PublishMode

QUICK = Retry(attempts=8, first=0.002, most=0.02)
PACKED = {version: PackedAdapter(b"", 1.0, "", f"digest {version}") for version in range(1000)}


class Fake:
    """A client in memory: `down` (no answer), `busy` (429), `broken` (500), `refuses` adapters (400); or it forgets."""

    def __init__(self, name: str, **info: Any) -> None:
        self.url = name
        facts = {"base_digest": "b", "tokenizer_digest": "t", "template_digest": "c", "vocab_size": 9, "context": 9}
        self.facts = {"protocol": 1, "model": "m", **facts, **info}
        self.adapters: dict[str, AdapterInfo] = {}
        self.down = self.busy = self.broken = self.refuses = self.closed = False
        self.asked = self.most = self.now = 0
        self.hold: asyncio.Event | None = None

    def forget(self) -> None:
        self.adapters = {}

    def _there(self) -> None:
        if self.down:
            raise ServerUnavailable(f"{self.url} is down")

    async def complete(self, request: Request, *, session: str | None = None) -> Completion:
        self._there()
        if self.busy:
            raise ServerUnavailable(f"{self.url} is busy", status=429)
        if self.broken:
            raise RequestRefused(500, f"{self.url} is broken")
        if request.adapter is not None and request.adapter not in self.adapters:
            raise RequestRefused(404, "no such adapter")
        info = None if request.adapter is None else self.adapters[request.adapter]
        version, digest = (0, None) if info is None else (info.version, info.digest)
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.now -= 1
        self._there()
        done = Completion(0, [], [], [], "stop", request.adapter, version, 1, 0, error=self.url)
        return replace(done, adapter_digest=digest)

    async def chat(self, messages: Sequence[Any], *, session: str | None = None, **sampling: Any) -> ChatReply:
        raise NotImplementedError

    async def publish(
        self,
        name: str,
        weights: Mapping[str, Any] | PackedAdapter,
        scale: float,
        version: int,
        mode: PublishMode = "pin",
    ) -> str:
        self._there()
        await asyncio.sleep(0)
        if self.refuses:
            raise RequestRefused(400, f"{self.url} refuses")
        assert isinstance(weights, PackedAdapter)
        self.adapters[name] = AdapterInfo(name, version, weights.digest, 1, 0)
        return weights.digest

    async def unpublish(self, name: str) -> None:
        self._there()
        if name not in self.adapters:
            raise RequestRefused(404, "no such adapter")
        del self.adapters[name]

    async def info(self) -> ServerInfo:
        self._there()
        return ServerInfo(**self.facts, adapters=dict(self.adapters))

    async def health(self) -> bool:
        return not self.down

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def pooled(fakes: Sequence[Any], ask: Callable[[Pool], Awaitable[Any]], retry: Retry = QUICK) -> Any:
    async def run() -> Any:
        async with Pool(fakes, retry=retry) as pool:
            return await ask(pool)

    return asyncio.run(asyncio.wait_for(run(), 60))


def by(completion: Completion) -> str:
    """Which fake has answered."""
    return str(completion.error)


ASK = query((1,))
PRO = query((1,), adapter="pro")


# --- who answers -----------------------------------------------------------------------------------------------------


def test_the_least_busy_endpoint_is_asked() -> None:
    fakes = [Fake(name) for name in "abc"]

    async def ask(pool: Pool) -> None:
        for one in fakes:
            one.hold = asyncio.Event()
        waiting = [asyncio.ensure_future(pool.complete(ASK)) for _ in range(9)]
        await asyncio.sleep(0.01)
        assert [one.now for one in fakes] == [3, 3, 3]
        fakes[1].hold.set()  # type: ignore[union-attr]
        await asyncio.sleep(0.01)
        waiting += [asyncio.ensure_future(pool.complete(ASK)) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert fakes[1].asked == 5 and [s.outstanding for s in pool.status()] == [3, 0, 3]
        waiting[0].cancel()
        for one in fakes:
            one.hold.set()  # type: ignore[union-attr]
        await asyncio.gather(*waiting, return_exceptions=True)
        assert [s.outstanding for s in pool.status()] == [0, 0, 0]
        assert sum(s.served for s in pool.status()) == 10

    pooled(fakes, ask)
    assert all(one.closed for one in fakes)


def test_a_session_stays_and_moves_only_when_its_endpoint_is_gone() -> None:
    fakes = [Fake(name) for name in "abc"]

    async def ask(pool: Pool) -> None:
        homes = {s: by(await pool.complete(ASK, session=s)) for s in ("x", "y", "z")}
        assert sorted(homes.values()) == ["a", "b", "c"]
        for _ in range(3):
            assert {s: by(await pool.complete(ASK, session=s)) for s in homes} == homes
            await pool.complete(ASK)
        fakes[0].down = True
        [moved] = [s for s, home in homes.items() if home == "a"]
        new = by(await pool.complete(ASK, session=moved))
        fakes[0].down = False
        await asyncio.sleep(0.05)
        await pool.complete(ASK)
        await asyncio.sleep(0.01)
        assert new != "a" and all(s.usable for s in pool.status())
        assert by(await pool.complete(ASK, session=moved)) == new

    pooled(fakes, ask)


def test_a_busy_endpoint_stays_in_use_and_the_request_goes_elsewhere() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        fakes[0].busy = True
        assert {by(await pool.complete(ASK)) for _ in range(4)} == {"b"}
        assert all(s.usable for s in pool.status())
        fakes[1].busy = True
        asyncio.get_running_loop().call_later(0.02, setattr, fakes[0], "busy", False)
        assert by(await pool.complete(ASK)) == "a"
        fakes[0].busy = True
        with pytest.raises(ServerUnavailable, match="busy"):
            await pool.complete(ASK)

    pooled(fakes, ask)


def test_a_request_that_breaks_every_endpoint_is_given_up() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        fakes[0].broken = True
        assert {by(await pool.complete(ASK)) for _ in range(4)} == {"b"}
        fakes[1].broken = True
        with pytest.raises(RequestRefused, match="broken"):
            await pool.complete(ASK)
        fakes[1].broken = False
        with pytest.raises(RequestRefused, match="no such adapter"):
            await pool.complete(PRO)
        assert all(s.usable for s in pool.status())

    pooled(fakes, ask)


def test_when_all_are_gone_requests_wait_for_the_first_that_returns_and_not_for_ever() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        fakes[0].down = fakes[1].down = True
        asyncio.get_running_loop().call_later(0.03, setattr, fakes[1], "down", False)
        assert {by(c) for c in await asyncio.gather(*(pool.complete(ASK) for _ in range(20)))} == {"b"}
        fakes[1].down = True
        with pytest.raises(ServerUnavailable, match=r"a is down.*b is down"):
            await pool.complete(ASK)
        assert not await pool.health()

    pooled(fakes, ask)


# --- who serves what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "what"),
    [("base_digest", "base model"), ("tokenizer_digest", "tokenizer"), ("template_digest", "chat template")],
)
def test_an_endpoint_with_another_model_is_named(field: str, what: str) -> None:
    async def ask(pool: Pool) -> None:
        raise AssertionError("never entered")

    fakes = [Fake("http://a"), Fake("http://b", **{field: "other"}), Fake("http://c")]
    with pytest.raises(Incompatible, match=rf"^http://b differs from http://a in the {what} \('."):
        pooled(fakes, ask)
    assert all(one.closed for one in fakes)


def test_an_endpoint_that_comes_back_with_another_model_stays_out() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        fakes[1].down = True
        await asyncio.gather(*(pool.complete(ASK) for _ in range(4)))
        fakes[1].down = False
        fakes[1].facts["tokenizer_digest"] = "other"
        asked = fakes[1].asked
        for _ in range(10):
            await asyncio.sleep(0.01)
            assert by(await pool.complete(ASK)) == "a"
        assert fakes[1].asked == asked and "b differs from the others in the tokenizer" in str(pool.status()[1].error)
        with pytest.raises(Incompatible, match="the tokenizer"):
            await pool.info()

    pooled(fakes, ask)


def test_a_pool_begins_with_those_that_are_there() -> None:
    fakes = [Fake("a"), Fake("b")]
    fakes[0].down = True

    async def ask(pool: Pool) -> None:
        assert by(await pool.complete(ASK)) == "b" and (await pool.info()).model == "m"
        fakes[0].down = False
        await asyncio.sleep(0.05)
        assert {by(await pool.complete(ASK)) for _ in range(6)} == {"a", "b"}

    pooled(fakes, ask)
    with pytest.raises(ValueError, match="at least one"):
        Pool([])
    for one in fakes:
        one.down = True
    with pytest.raises(ServerUnavailable, match=r"a is down.*b is down"):
        pooled(fakes, ask, Retry(attempts=2, first=0.001))


# --- publishing ------------------------------------------------------------------------------------------------------


def test_a_publication_reaches_all_and_those_that_were_away_before_they_are_used() -> None:
    fakes = [Fake(name) for name in "abc"]

    async def ask(pool: Pool) -> None:
        assert await pool.publish("pro", PACKED[1], 1.0, 1) == "digest 1"
        assert [one.adapters["pro"].version for one in fakes] == [1, 1, 1]
        fakes[1].down = True
        await pool.publish("pro", PACKED[2], 1.0, 2)
        await pool.publish("con", PACKED[7], 1.0, 7)
        assert [s.usable for s in pool.status()] == [True, False, True]
        fakes[1].down = False  # it comes back with version 1, and without "con"
        while not pool.status()[1].usable:
            await asyncio.sleep(0.005)
            assert (await pool.complete(PRO)).policy_version == 2
        assert {name: info.version for name, info in fakes[1].adapters.items()} == {"pro": 2, "con": 7}
        fakes[1].down = True
        await pool.unpublish("con")
        fakes[1].down = False
        while not pool.status()[1].usable:
            await asyncio.sleep(0.005)
            await pool.complete(PRO)
        assert "con" not in fakes[1].adapters
        with pytest.raises(RequestRefused, match="no adapter 'con'"):
            await pool.unpublish("con")

    pooled(fakes, ask)


def test_a_restart_that_nobody_noticed_is_noticed_by_its_answers() -> None:
    fakes = [Fake("a")]

    async def ask(pool: Pool) -> None:
        await pool.publish("pro", PACKED[5], 1.0, 5)
        fakes[0].forget()
        assert (await pool.complete(PRO)).policy_version == 5
        fakes[0].adapters["pro"] = AdapterInfo("pro", 1, "from its command line", 1, 0)
        assert (await pool.complete(PRO)).policy_version == 5
        assert fakes[0].adapters["pro"].digest == "digest 5"

    pooled(fakes, ask)


def test_what_is_published_while_an_endpoint_comes_back_reaches_it_before_it_is_used() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        await pool.publish("pro", PACKED[1], 1.0, 1)
        fakes[1].down = True
        await pool.publish("pro", PACKED[2], 1.0, 2)
        published, send = asyncio.Event(), fakes[1].publish

        async def slow(*arguments: Any) -> str:
            await published.wait()
            return await send(*arguments)

        fakes[1].down, fakes[1].publish = False, slow  # type: ignore[method-assign]
        while not pool._members.endpoints[1].revival:
            await asyncio.sleep(0.005)
            await pool.complete(PRO)
        await asyncio.sleep(0.01)  # it is being given version 2
        await pool.publish("pro", PACKED[3], 1.0, 3)
        published.set()
        while not pool.status()[1].usable:
            await asyncio.sleep(0)
        assert fakes[1].adapters["pro"].version == 3

    pooled(fakes, ask)


def test_a_failure_from_before_a_restart_says_nothing_about_the_server_now() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        fakes[1].hold = asyncio.Event()
        held = [asyncio.ensure_future(pool.complete(ASK)) for _ in range(2)]
        await asyncio.sleep(0.01)
        pool._members.endpoints[1].leave_out(1, ServerUnavailable("another request has failed"))
        while not pool.status()[1].usable:
            await asyncio.sleep(0.005)
            await pool.complete(ASK)
        fakes[1].down = True
        fakes[1].hold.set()
        assert {by(await one) for one in held} == {"a"}
        assert pool.status()[1].usable

    pooled(fakes, ask)


def test_a_publication_that_is_refused_by_all_changes_nothing() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        await pool.publish("pro", PACKED[1], 1.0, 1)
        for one in fakes:
            one.refuses = True
        with pytest.raises(RequestRefused, match="a refuses"):
            await pool.publish("pro", PACKED[2], 1.0, 2)
        assert all(s.usable for s in pool.status())
        assert {(await pool.complete(PRO)).policy_version for _ in range(4)} == {1}
        for one in fakes:
            one.refuses, one.adapters = False, {}
        assert {(await pool.complete(PRO)).policy_version for _ in range(4)} == {1}

    pooled(fakes, ask)


class Held(Fake):
    """It answers `unpublish` and `publish` when it is let."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked_to, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def publish(self, name: str, *args: Any, **options: Any) -> str:
        self.asked_to.set()
        await self.go.wait()
        return await super().publish(name, *args, **options)

    async def unpublish(self, name: str) -> None:
        self.asked_to.set()
        await self.go.wait()
        await super().unpublish(name)


def test_who_fails_to_let_go_of_a_name_is_asked_again_also_when_all_were_in_use_meanwhile() -> None:
    async def run() -> None:
        fakes = [Held("a"), Held("b")]
        async with Pool(fakes, retry=QUICK) as pool:
            await pool.publish("pro", PACKED[1], 1.0, 1)
            fakes[1].down = True
            await asyncio.gather(*(pool.complete(ASK) for _ in range(4)))
            fakes[0].go.clear(), fakes[0].asked_to.clear()
            going = asyncio.ensure_future(pool.unpublish("pro"))
            await fakes[0].asked_to.wait()
            fakes[1].down = False
            while not all(s.usable for s in pool.status()):  # b is back, without the name; a has not heard of it yet
                await asyncio.sleep(0.005)
                await pool.complete(ASK, session="b" if pool.status()[1].usable else None)
            fakes[0].down = True
            fakes[0].go.set()
            await asyncio.sleep(0.01)
            fakes[0].down = False
            await going
            while not all(s.usable for s in pool.status()):
                await asyncio.sleep(0.005)
                await pool.complete(ASK)
            assert [list(one.adapters) for one in fakes] == [[], []]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_who_clears_waits_for_a_publication_that_is_under_way() -> None:
    async def run() -> None:
        fakes = [Held("a"), Held("b")]
        async with Pool(fakes, retry=QUICK) as pool:
            fakes[0].go.clear(), fakes[0].asked_to.clear()
            coming = asyncio.ensure_future(pool.publish("run.pro", PACKED[1], 1.0, 1))
            await fakes[0].asked_to.wait()
            clearing = asyncio.ensure_future(pool.clear("run."))
            await asyncio.sleep(0.01)
            fakes[0].go.set()
            await asyncio.gather(coming, clearing)
            assert [list(one.adapters) for one in fakes] == [[], []]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_every_client_is_closed_although_one_cannot_be() -> None:
    class Stuck(Fake):
        async def close(self) -> None:
            raise OSError("its socket is gone")

    class Slow(Fake):
        async def close(self) -> None:
            await asyncio.sleep(0.01)
            await super().close()

    fakes = [Stuck("a"), Slow("b")]
    with pytest.raises(OSError, match="its socket is gone"):
        pooled(fakes, lambda pool: pool.complete(ASK))
    assert fakes[1].closed


def test_who_alone_refuses_a_publication_is_named_and_left_out() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        await pool.publish("pro", PACKED[1], 1.0, 1)
        fakes[1].refuses = True
        with pytest.raises(RequestRefused, match="not all endpoints took 'pro': b refuses"):
            await pool.publish("pro", PACKED[2], 1.0, 2)
        assert {by(await pool.complete(PRO)) for _ in range(4)} == {"a"}
        fakes[1].refuses = False
        while not pool.status()[1].usable:
            await asyncio.sleep(0.005)
            assert (await pool.complete(PRO)).policy_version == 2

    pooled(fakes, ask)


def test_a_publication_waits_for_the_first_endpoint_and_not_for_ever() -> None:
    fakes = [Fake("a"), Fake("b")]

    async def ask(pool: Pool) -> None:
        await pool.publish("pro", PACKED[1], 1.0, 1)
        for one in fakes:
            one.down = True
        asyncio.get_running_loop().call_later(0.03, setattr, fakes[1], "down", False)
        assert await pool.publish("pro", PACKED[2], 1.0, 2) == "digest 2"
        assert fakes[1].adapters["pro"].version == 2
        fakes[1].down = True
        with pytest.raises(ServerUnavailable, match="no endpoint is usable"):
            await pool.publish("pro", PACKED[3], 1.0, 3)
        fakes[0].down = False
        assert (await pool.complete(PRO)).policy_version == 2

    pooled(fakes, ask)


EVENTS = st.tuples(
    st.sampled_from(["kill", "return", "restart", "stale", "busy", "free", "publish", "ask"]), st.integers(0, 2)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_whatever_happens_every_answer_is_of_the_version_published_last(events: list[tuple[str, int]]) -> None:
    """At least one endpoint is up all the time; then nothing is lost and nothing is stale."""
    fakes = [Fake(name) for name in "abc"]

    async def ask(pool: Pool) -> None:
        version = 1
        await pool.publish("pro", PACKED[version], 1.0, version)
        for event, number in events:
            one = fakes[number]
            if event == "kill" and sum(not other.down and not other.busy for other in fakes if other is not one):
                one.down = True
            elif event in ("return", "restart"):
                one.down = False
                if event == "restart":
                    one.forget()
            elif event == "stale":
                one.adapters["pro"] = AdapterInfo("pro", 0, "old", 1, 0)
            elif event == "busy" and sum(not other.down and not other.busy for other in fakes if other is not one):
                one.busy = True
            elif event == "free":
                one.busy = False
            elif event == "publish":
                version += 1
                await pool.publish("pro", PACKED[version], 1.0, version)
            found = await asyncio.gather(*(pool.complete(PRO, session=str(i)) for i in range(4)))
            assert {completion.policy_version for completion in found} == {version}
        assert all(s.outstanding == 0 for s in pool.status())

    pooled(fakes, ask, Retry(attempts=12, first=0.0005, most=0.001))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "undo", "settle", "begin", "drop"]), st.integers(0, 5)), max_size=30))
def test_an_answer_may_come_from_what_was_current_while_its_request_ran(events: list[tuple[str, int]]) -> None:
    """Against a list of what was current, and of what may have been so at an endpoint, at each moment."""
    books = Publications()
    books.put("a", Publication(PACKED[9], 9))
    books.settle("a")
    possible: list[set[int]] = [{9}]
    began: list[tuple[Any, int]] = []
    undo = None
    for event, version in events:
        if event == "put" and undo is None:
            undo = books.put("a", Publication(PACKED[version], version))
            possible.append(possible[-1] | {version})
        elif event == "undo" and undo is not None:
            before = books.items()
            undo()
            undo = None
            possible.append(possible[-2])
            assert before != books.items() or len(possible[-1]) == 1
        elif event == "settle" and undo is not None:
            books.settle("a")
            undo = None
            possible.append({dict(books.items())["a"].version})
        elif event == "begin":
            began.append((books.mark("a"), len(possible) - 1))
        for mark, moment in began:
            for served in set().union(*possible[moment:]):
                assert books.plausible(mark, served, PACKED[served].digest)
    if undo is None:
        now = dict(books.items())["a"].version
        assert [v for v in range(10) if books.plausible(books.mark("a"), v, PACKED[v].digest)] == [now]
        assert not books.plausible(books.mark("a"), now, "of another run")
    assert books.plausible(books.mark("b"), 1, "any") and books.plausible(books.mark(None), 0, None)


# --- real servers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(random_model_dir: Path) -> Iterator[list[LiveServer]]:
    with serving(random_model_dir) as one, serving(random_model_dir) as other:
        yield [one, other]


def test_a_server_dies_under_load_and_nothing_is_lost_and_it_catches_up(
    pair: list[LiveServer], random_model_dir: Path, make_adapter: Callable[..., Any]
) -> None:
    first = [change(LONG, max_tokens=30 + i % 40, seed=i, adapter="pro" if i % 2 else None) for i in range(48)]
    with Engine.load(random_model_dir) as engine:
        engine.publish("pro", make_adapter(1), scale=1.0, version=1)
        expected = [completion.tokens for completion in engine.generate(first)]

    async def load() -> None:
        clients = [HttpClient(server.url) for server in pair]
        async with Pool(clients, retry=Retry(first=0.02, most=0.2)) as pool:
            await pool.publish("pro", make_adapter(1), 1.0, 1)
            asked = [asyncio.ensure_future(pool.complete(request)) for request in first]
            await asyncio.to_thread(wait_until, lambda: all(server.engine.running >= 8 for server in pair))
            await asyncio.to_thread(pair[1].kill)
            assert [completion.tokens for completion in await asyncio.gather(*asked)] == expected
            assert [s.usable for s in pool.status()] == [True, False]
            digest = await pool.publish("pro", make_adapter(2), 1.0, 2)
            await asyncio.to_thread(pair[1].restart)
            while not pool.status()[1].usable:
                assert (await pool.complete(change(LONG, max_tokens=2, adapter="pro"))).policy_version == 2
            infos = [await client.info() for client in clients]
            assert [info.adapters["pro"].digest for info in infos] == [digest, digest]
            served = [s.served for s in pool.status()]
            found = [await pool.complete(change(LONG, max_tokens=4, adapter="pro", seed=i)) for i in range(6)]
            assert {completion.policy_version for completion in found} == {2}
            assert [s.served - before for s, before in zip(pool.status(), served)] == [3, 3]
            await pool.unpublish("pro")
            assert [(await client.info()).adapters for client in clients] == [{}, {}]

    asyncio.run(asyncio.wait_for(load(), 60))


def test_a_conversation_finds_its_cache_again(pair: list[LiveServer]) -> None:
    async def talk() -> None:
        async with Pool([HttpClient(server.url) for server in pair]) as pool:
            talks: dict[str, list[dict[str, str]]] = {name: [*HELLO] for name in ("x", "y", "z")}
            for turn in range(3):
                for number, (name, messages) in enumerate(talks.items()):
                    reply = await pool.chat(messages, session=name, max_tokens=8, seed=10 * turn + number)
                    assert not turn or reply.usage.cached_tokens >= seen[name]
                    seen[name] = reply.usage.prompt_tokens
                    messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "go on"}]

    seen: dict[str, int] = {}
    asyncio.run(asyncio.wait_for(talk(), 60))


def test_a_server_with_another_model_is_refused(pair: list[LiveServer], random_model_dir: Path) -> None:
    with serving("tiny") as other:

        async def enter() -> None:
            async with Pool([LocalClient.load(random_model_dir), HttpClient(pair[0].url), HttpClient(other.url)]):
                raise AssertionError("never entered")

        with pytest.raises(Incompatible) as caught:
            asyncio.run(asyncio.wait_for(enter(), 60))
        text = str(caught.value)
        assert text.startswith(f"{other.url} differs from client 0") and "base model" in text and "tokenizer" in text


def test_a_server_without_the_key_is_refused(random_model_dir: Path) -> None:
    with serving(random_model_dir, keys=("a-key-of-16-chars",)) as server:

        async def enter(key: str | None) -> int:
            async with Pool([HttpClient(server.url, key)]) as pool:
                return (await pool.info()).vocab_size

        assert asyncio.run(enter("a-key-of-16-chars")) > 0
        for key in (None, "another-key-of-16"):
            with pytest.raises(RequestRefused, match="API key") as caught:
                asyncio.run(enter(key))
            assert caught.value.status == 401
        assert over_http(server, lambda client: client.health())
