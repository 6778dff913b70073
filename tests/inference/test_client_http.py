"""The HTTP client against servers that are busy, gone, wrong or hostile."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import math
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import httpx2
import pytest
from asking import change, query
from hypothesis import given
from hypothesis import strategies as st
from live import Scripted, completion_answer, info_answer

from inference import HttpClient, InferenceError, Request, RequestRefused, SamplingParams, ServerUnavailable
from inference.client import BadAnswer, wire
from inference.client import retry as retrying
from inference.client.packing import pack
from inference.client.retry import Retry

URL = "http://server.example:8000"
KEY = "legos-secret-key-0123456789"
ASK = query((1,), max_tokens=2, seed=0)
GOOD = (200, {}, completion_answer([7, 8]))
QUICK = Retry(attempts=5, first=0.001, most=0.002)


def busy(status: int = 429, **headers: str) -> tuple[int, dict[str, str], Any]:
    said = {"error": {"message": "later", "type": "rate_limit_error", "param": None, "code": status}}
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, said


def ask(
    script: Scripted, question: Callable[[HttpClient], Awaitable[Any]] | None = None, retry: Retry = QUICK, **more: Any
) -> Any:
    async def run() -> Any:
        async with HttpClient(URL, transport=script.transport, retry=retry, **more) as client:
            return await (question(client) if question else client.complete(ASK))

    return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between attempts, which take no time. Other threads of the test run may sleep meanwhile."""
    found: list[float] = []
    real, here = asyncio.sleep, threading.get_ident()

    async def note(seconds: float) -> None:
        if threading.get_ident() != here:
            await real(seconds)
        else:
            found.append(seconds)

    monkeypatch.setattr(retrying.asyncio, "sleep", note)
    return found


@pytest.mark.parametrize(
    "failure",
    [busy(429), busy(503), busy(502), httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError],
    ids=str,
)
def test_what_may_pass_is_tried_again(failure: Any, pauses: list[float]) -> None:
    script = Scripted(failure, failure, GOOD)
    assert ask(script).tokens == [7, 8]
    assert len(pauses) == 2
    first, *others = [request.content for request in script.requests]
    assert all(other == first for other in others) and json.loads(first)["seed"] == 0


def test_a_drawn_seed_stays_the_same_when_a_chat_is_repeated() -> None:
    answer = completion_answer([7])
    answer["choices"][0]["message"] = {"role": "assistant", "content": "x"}
    script = Scripted(httpx2.ReadError, (200, {}, answer))
    ask(script, lambda client: client.chat([{"role": "user", "content": "hi"}]))
    ask(script, lambda client: client.chat([{"role": "user", "content": "hi"}]))
    seeds = [json.loads(request.content)["seed"] for request in script.requests]
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500])
def test_what_will_not_pass_is_not_tried_again(status: int, pauses: list[float]) -> None:
    script = Scripted(busy(status, Retry_After="1"))
    with pytest.raises(RequestRefused, match="later") as caught:
        ask(script)
    assert caught.value.status == status and len(script.requests) == 1 and not pauses


def test_waits_grow_vary_and_end(pauses: list[float]) -> None:
    script = Scripted(httpx2.ConnectError)
    for _ in range(20):
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            ask(script, retry=Retry(attempts=6, first=1.0, most=5.0, budget=1e9))
    assert len(script.requests) == 120
    for number, backoff in enumerate((1.0, 2.0, 4.0, 5.0, 5.0)):
        waits = pauses[number::5]
        assert all(backoff / 2 <= wait <= backoff for wait in waits) and len(set(waits)) > 10


def test_retry_after_is_honoured_and_bounded(pauses: list[float]) -> None:
    date = email.utils.formatdate(time.time() + 8, usegmt=True)
    script = Scripted(busy(429, Retry_After="7"), busy(503, Retry_After=date), busy(429, Retry_After="soon"), GOOD)
    assert ask(script).tokens == [7, 8]
    assert pauses[0] == 7.0 and 5.0 < pauses[1] <= 8.0 and pauses[2] <= 0.002
    script = Scripted(busy(429, Retry_After="3600"))
    with pytest.raises(ServerUnavailable, match="later") as caught:
        ask(script)
    assert len(script.requests) == 1 and caught.value.retry_after == 3600 and caught.value.status == 429


@given(st.text() | st.floats().map(str) | st.datetimes().map(email.utils.format_datetime))
def test_any_retry_after_is_a_wait_or_nothing(value: str) -> None:
    seconds = retrying.retry_after(value)
    assert seconds is None or 0 <= seconds < math.inf


@given(st.integers(1, 10_000), st.none() | st.floats(0, 1e6))
def test_waits_are_bounded(failures: int, asked: float | None) -> None:
    policy = Retry()
    assert (asked or 0.0) <= policy.wait(failures, asked) <= max(asked or 0.0, policy.most)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first": -1}, {"first": 9.0, "most": 1.0}, {"budget": -1}])
def test_retries_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="attempts"):
        Retry(**wrong)


def test_a_server_that_is_too_slow_is_not_asked_again() -> None:
    async def slow(request: Any) -> Any:
        script.requests.append(request)
        await asyncio.sleep(5)

    script = Scripted(GOOD)

    async def run() -> None:
        client = HttpClient(URL, transport=httpx2.MockTransport(slow), timeout=0.05, retry=QUICK)
        with pytest.raises(ServerUnavailable, match=r"within 0\.05 seconds") as caught:
            await client.complete(ASK)
        assert caught.value.timed_out

    asyncio.run(run())
    assert len(script.requests) == 1


# --- publishing ------------------------------------------------------------------------------------------------------


def test_a_publication_is_not_repeated_when_it_has_arrived(make_adapter: Callable[..., Any]) -> None:
    packed = pack(make_adapter(1), 2.0)
    adapter = {"version": 5, "digest": packed.digest, "rank": 4, "running": 0}
    done = (200, {}, {"digest": packed.digest})

    def publish(script: Scripted) -> tuple[str, list[str]]:
        digest = ask(script, lambda client: client.publish("a", packed, 2.0, 5, mode="abort"))
        return digest, [request.method for request in script.requests]

    lost, arrived, other = httpx2.ReadError, info_answer({"a": adapter}), info_answer({"a": {**adapter, "version": 4}})
    assert publish(Scripted(done)) == (packed.digest, ["PUT"])
    assert publish(Scripted(lost, (200, {}, arrived))) == (packed.digest, ["PUT", "GET"])
    assert publish(Scripted(lost, (200, {}, info_answer()), done)) == (packed.digest, ["PUT", "GET", "PUT"])
    assert publish(Scripted(lost, (200, {}, other), done)) == (packed.digest, ["PUT", "GET", "PUT"])
    with pytest.raises(BadAnswer, match="other weights"):
        publish(Scripted((200, {}, {"digest": "0" * 64})))


def test_what_is_published_is_named_scaled_and_signed(make_adapter: Callable[..., Any]) -> None:
    weights = make_adapter(1)
    packed = pack(weights, 1 / 3)
    script = Scripted((200, {}, {"digest": packed.digest}))
    ask(script, lambda client: client.publish("pro.v-1_x", weights, 1 / 3, 7, mode="wait"))
    [request] = script.requests
    assert request.url.path == "/v1/adapters/pro.v-1_x" and request.content == packed.body
    assert dict(request.url.params) == {"scale": repr(1 / 3), "version": "7", "mode": "wait"}
    assert request.headers["X-Content-SHA256"] == packed.sha256


def test_a_repeated_unpublish_may_find_nothing() -> None:
    ask(Scripted(httpx2.ReadError, busy(404)), lambda client: client.unpublish("a"))
    with pytest.raises(RequestRefused):
        ask(Scripted(busy(404)), lambda client: client.unpublish("a"))


# --- requests --------------------------------------------------------------------------------------------------------

CHANGED: dict[str, Any] = {
    "prompt": (4, 5),
    "max_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.5,
    "seed": 5,
    "stop_ids": frozenset(),
    "adapter": "a",
    "thinking_token_budget": 7,
    "speculate": 4,
    "top_logprobs": 1,
    "stop": ("x",),
    "logit_bias": {1: 1.0},
    "allowed": ((1, 2),),
}


def test_every_field_of_a_request_is_sent_or_refused() -> None:
    assert {field.name for field in (*fields(Request), *fields(SamplingParams))} == {
        *CHANGED,
        "sampling",
        "stream",
        "park",
        "guide",
        "session",
    }
    plain = wire.completion_body(ASK)
    bodies = [wire.completion_body(change(ASK, **{name: value})) for name, value in CHANGED.items()]
    assert all(body != plain for body in bodies) and len({json.dumps(body) for body in bodies}) == len(CHANGED)
    with pytest.raises(RequestRefused, match="stream"):
        wire.completion_body(change(ASK, stream=True))
    with pytest.raises(RequestRefused, match="a guide cannot be sent to a server"):
        wire.completion_body(change(ASK, guide=object()))


def test_every_field_of_a_chat_is_sent() -> None:
    plain = wire.chat_body([], SamplingParams(seed=0), None, None)
    changes = [
        {"seed": 0, option.name: CHANGED[option.name]} for option in fields(SamplingParams) if option.name != "guide"
    ]
    bodies = [wire.chat_body([], SamplingParams(**change), None, None) for change in changes]
    bodies += [
        wire.chat_body([], SamplingParams(seed=0), "a", None),
        wire.chat_body([], SamplingParams(seed=0), None, ["a"]),
    ]
    assert all(body != plain for body in bodies)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["choices", "usage", *(f"choices/{name}" for name in completion_answer([1])["choices"][0])]),
    ANYTHING,
)
def test_an_answer_is_read_or_refused(where: str, value: Any) -> None:
    answer = completion_answer([7, 8])
    holder, _, name = where.rpartition("/")
    (answer["choices"][0] if holder else answer)[name] = value
    try:
        done = wire.read_completion(answer, ASK, 0)
    except BadAnswer:
        return
    assert all(type(token) is int for token in done.tokens) and len(done.tokens) == len(done.logprobs)
    assert all(math.isfinite(p) for p in (*done.logprobs, *done.sampled_logprobs))


@given(ANYTHING)
def test_nonsense_is_no_answer(value: Any) -> None:
    for read in (
        lambda: wire.read_completion(value, ASK, 0),
        lambda: wire.read_chat(value, SamplingParams(), None),
        lambda: wire.read_info(value),
    ):
        with pytest.raises(BadAnswer):
            read()
    assert isinstance(wire.error_text(value), str)


def test_an_answer_by_another_adapter_or_without_alternatives_is_refused() -> None:
    with pytest.raises(BadAnswer, match="adapter"):
        ask(Scripted((200, {}, completion_answer([7], adapter="b"))))
    with pytest.raises(BadAnswer, match="token_top_logprobs"):
        ask(Scripted(GOOD), lambda client: client.complete(change(ASK, top_logprobs=1)))
    pairs = (200, {}, completion_answer([7], token_top_logprobs=[[[7, -1]]]))
    done = ask(Scripted(pairs), lambda client: client.complete(change(ASK, top_logprobs=1)))
    assert done.top_logprobs == [[(7, -1.0)]]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((200, {}, b"<html>"), BadAnswer, "other than JSON"),
        ((200, {}, b'{"choices": NaN}'), BadAnswer, "other than JSON"),
        ((200, {}, b"[" * 9_000), BadAnswer, "other than JSON"),
        ((200, {}, b"x" * 20_000), BadAnswer, "more than 10000 bytes"),
        ((200, {"Content-Encoding": "gzip"}, b"no gzip"), BadAnswer, "decoded"),
        ((302, {"Location": "http://evil.example/"}, b""), RequestRefused, "redirects are not followed"),
        ((500, {}, b"\xff\xfe"), RequestRefused, "Internal Server Error"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_server_that_is_none(answer: Any, error: type[InferenceError], text: str) -> None:
    script = Scripted(answer)
    with pytest.raises(error, match=text):
        ask(script, max_answer_bytes=10_000)
    assert len(script.requests) == 1


# --- keys and addresses ----------------------------------------------------------------------------------------------


def test_keys_are_sent_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"who is Bearer {KEY}?"}}
    told: list[str] = []

    async def run() -> None:
        steps = [(401, {}, echo), (503, {}, echo), httpx2.ConnectError(f"no {KEY}"), (200, {}, KEY.encode())]
        for step in steps:
            script = Scripted(step)
            client = HttpClient(URL, KEY, transport=script.transport, retry=Retry(attempts=2, first=0.001))
            try:
                await client.complete(ASK)
            except InferenceError as error:
                told.extend((str(error), repr(error), *traceback.format_exception(error)))
            told.extend((repr(client), str(vars(client)), repr(client._http.headers)))
            assert script.requests[0].headers["Authorization"] == f"Bearer {KEY}"
            await client.close()
        async with HttpClient("http://127.0.0.1:9", KEY, retry=Retry(attempts=1)) as nobody:  # the real transport logs
            assert not await nobody.health()

    asyncio.run(run())
    assert len(told) > 20 and any("***" in text for text in told) and caplog.records
    assert not any(KEY in text for text in [*told, caplog.text])


@pytest.mark.parametrize("key", ["", "two words", "line\nend", "schlüssel", 5])
def test_keys_that_cannot_be_sent_are_refused_without_telling_them(key: Any) -> None:
    with pytest.raises(ValueError, match="api_key must be") as caught:
        HttpClient(URL, key)
    assert not key or str(key) not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "server",
        "ftp://server",
        "http://",
        "http://s/?q=1",
        "http://s#x",
        "http://[",
        "http://s:99999",
        None,
        "file:///etc",
    ],
)
def test_addresses_that_are_none(url: Any) -> None:
    with pytest.raises(ValueError, match="this address cannot be read"):
        HttpClient(url)


def test_a_password_in_an_address_is_refused_and_not_told() -> None:
    with pytest.raises(ValueError, match="api_key") as caught:
        HttpClient("http://user:hunter2@server")
    assert "hunter2" not in str(caught.value) and caught.value.__cause__ is None


def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client = HttpClient("http://server.example")
    assert not client._http._mounts and not client._http.trust_env and not client._http.follow_redirects
    asyncio.run(client.close())
