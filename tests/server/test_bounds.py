"""What one request may cost, and where: bytes and values are bounded first, long work is done beside the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from benchmarks.wire import Connection, Live, head
from inference.bounded_cache import BoundedCache, footprint
from inference.files import adapter_files, tensors
from inference.server import answers, bodies, running
from inference.server.guard import Guard
from inference.server.metrics import Metrics
from inference.server.protocol import ChatRequest, CompletionRequest
from inference.server.settings import Limits
from inference.text.encoding import TextEncoder
from inference.types import AdapterError

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
SAID = "bet " * 1100  # long enough to be tokenised beside the loop, short enough to be tokenised at all


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The threads in which texts are tokenised, from here on."""
    threads: list[str] = []
    plain = TextEncoder.plain

    def noted(self: TextEncoder, text: str) -> list[int]:
        threads.append(threading.current_thread().name)
        return plain(self, text)

    monkeypatch.setattr(TextEncoder, "plain", noted)
    yield threads


LONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a text": (COMPLETE, {"prompt": SAID}),
    "several texts": (COMPLETE, {"prompt": ["bet " * 300] * 4}),
    "a conversation": (CHAT, {"messages": [{"role": "user", "content": SAID}]}),
    "many messages": (
        CHAT,
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 80},
    ),
    "choices": (COMPLETE, {"prompt": "hi", "guided_choice": ["bet " * 10 + str(i) for i in range(200)]}),
    "a text to count": ("/tokenize", {"prompt": SAID}),
    "a conversation to count": ("/tokenize", {"messages": [{"role": "user", "content": SAID + "?"}]}),
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_are_read_and_tokenised_beside_the_loop(
    live: Live, tokenised: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, body = LONG[name]
    reads: list[str] = []
    read = bodies.read
    monkeypatch.setattr(bodies, "read", lambda *args: (reads.append(threading.current_thread().name), read(*args))[1])
    reply = live.ask("POST", path, body if path == "/tokenize" else body | {"max_tokens": 2})
    assert reply.status in (200, 400), reply
    assert tokenised and {*tokenised, *reads} == {"reader_0"}


def test_short_requests_take_no_detour(live: Live, tokenised: list[str]) -> None:
    assert live.ask("POST", COMPLETE, {"prompt": "bet", "max_tokens": 2}).status == 200
    assert tokenised == ["server"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETE, {"prompt": "x" * 900_000}),
        (COMPLETE, {"prompt": ["x" * 1_000_000] * 4}),
        (COMPLETE, {"prompt": ["é" * 500_000]}),
        (COMPLETE, {"prompt": "hi", "guided_choice": [f"{i:0300}" for i in range(4096)]}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 4000}] * 250}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 4000}] * 250}]}),
        ("/tokenize", {"prompt": "x" * 1_000_000}),
        ("/tokenize", {"messages": [{"role": "user", "content": "x" * 4000}] * 250}),
    ],
)
def test_too_much_text_is_refused_before_any_is_tokenised(
    live: Live, tokenised: list[str], path: str, body: dict[str, Any]
) -> None:
    reply = live.ask("POST", path, body)
    assert reply.status == 400 and "are tokenised" in reply.json()["error"]["message"], reply
    assert tokenised == []


def test_long_answers_are_the_same_as_short_ones(live: Live) -> None:
    """An answer is put together in pieces; JSON must not notice."""
    body = {"prompt": ["bet"] * 8, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    one = live.ask("POST", COMPLETE, body | {"prompt": "bet", "logprobs": 2}).json()
    many = live.ask("POST", COMPLETE, body | {"logprobs": 20}).json()
    assert list(one) == list(many) == ["id", "object", "created", "model", "choices", "usage"]
    assert [choice["token_ids"] for choice in many["choices"]] == [one["choices"][0]["token_ids"]] * 8
    assert many["usage"]["completion_tokens"] == 320
    counted = live.ask("POST", "/tokenize", {"prompt": SAID}).json()
    assert len(counted["tokens"]) == counted["count"] > 300 and counted["tokens"][:2] == counted["tokens"][-2:]


# --- JSON ------------------------------------------------------------------------------------------------------------


class Said(BaseModel):
    text: str


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt": [' + b"[]," * 100_000 + b"[]]}", "values"),
        (b'{"prompt": [' + b"7," * 300_000 + b"7]}", "values"),
        (b'{"prompt": [' + b'",",' * 300_000 + b'"a"]}', "values"),
        (b"{" + b",".join(b'"%d":1' % i for i in range(2000)) + b"}", "2000 keys; at most 1024"),
        (b'{"prompt": [' + b"9" * 5000 + b"]}", "5000 digits; at most 400"),
        (b'{"prompt": "a"', "JSON"),
        (b"[" * 100_000, "values"),
        (b"[" * 20_000, "JSON"),
    ],
)
def test_json_is_bounded_before_it_is_read(body: bytes, message: str) -> None:
    with pytest.raises(HTTPException, match=message) as refused:
        bodies.read(body, CompletionRequest)
    assert refused.value.status_code == 400 and len(refused.value.detail) < 400


@pytest.mark.parametrize(
    "text", ["1,2;" * 200_000, '{"a": [1, 2]}, ' * 60_000, '\\",\\' * 150_000, "\\" * 400_000 + ","]
)
def test_what_stands_within_texts_is_no_value(text: str) -> None:
    assert bodies.read(json.dumps({"text": text}).encode(), Said).text == text


@given(st.recursive(st.text('\\",[{:') | st.integers(), lambda inner: st.lists(inner)), st.integers(1, 9))
def test_values_are_counted_alike_in_pieces_of_any_size(value: Any, size: int) -> None:
    """Escapes and texts go on from one piece to the next."""
    body = json.dumps({"text": value}).encode()
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PIECE", size)
        values = bodies._values(body)
    assert values == max(
        bare.count(b",") + 4 * (bare.count(b":") + bare.count(b"[")) + 32 * bare.count(b"{"), bare.count(b'""')
    )


def test_texts_that_never_end_are_counted_in_linear_time() -> None:
    """Each of the quotes was taken for the beginning of a text, and looked for its end in all that follows."""
    start = time.process_time()
    with pytest.raises(HTTPException, match="values"):
        bodies.read(b"," * 300_000 + b'\\"' * 1_800_000, CompletionRequest)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "value", [[[]] * 50_000, [{}] * 50_000, [[7.5] * 1000] * 50, ["a", *[7] * 50_000], [7, *["a"] * 50_000]]
)
@pytest.mark.parametrize("kind", [CompletionRequest, ChatRequest])
def test_a_long_list_of_mistakes_is_not_collected(kind: type[BaseModel], value: Any) -> None:
    """Millions of errors took minutes to make, with the event loop standing still."""
    for field in ("prompt", "messages", "guided_choice", "guided_token_ids", "stop", "stop_token_ids"):
        with pytest.raises(ValidationError) as error:
            kind.model_validate({"prompt": "a", "messages": [{"role": "user", "content": "a"}]} | {field: value})
        assert error.value.error_count() < 20


def test_an_adapter_that_is_all_header_is_refused_before_it_is_read(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 tensors without values took 14 seconds to refuse, and nobody could publish meanwhile."""
    monkeypatch.setattr(tensors, "parse", lambda data: pytest.fail("it was read"))
    entry = ',"layer.%d.lora_a":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}'
    header = ('{"a":0' + "".join(entry % i for i in range(200_000)) + "}").encode()
    body = len(header).to_bytes(8, "little") + header
    digest = {"X-Content-SHA256": hashlib.sha256(body).hexdigest()}
    for query in ("", "?scale=1"):
        reply = live.ask("PUT", f"/v1/adapters/empty{query}", body, digest)
        assert reply.status == 400 and "at most 524288" in reply.json()["error"]["message"], reply


def test_an_adapter_that_takes_long_to_refuse_holds_up_no_other(
    live: Live, adapter_bytes: Callable[..., bytes], put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, go, inside = adapter_bytes(1), threading.Event(), threading.Event()
    read = adapter_files.adapter_tensors

    def waits(body: bytes) -> Any:
        if bytes(body) == slow:
            inside.set()
            assert go.wait(20)
            raise AdapterError("it took its time")
        return read(body)

    monkeypatch.setattr(adapter_files, "adapter_tensors", waits)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(put, "a", slow)
        try:
            assert inside.wait(10)
            assert put("b", adapter_bytes(2)).status == 200 and live.ask("DELETE", "/v1/adapters/b").status == 200
            assert not waiting.done() and live.ask("GET", "/health").status == 200
        finally:
            go.set()
        assert waiting.result(10).status == 400


# --- what waits and what is kept -------------------------------------------------------------------------------------


def test_bodies_that_wait_are_bounded_together() -> None:
    """Three requests of 3,000 bytes where 7,000 are held: the third is asked to come again, later it is served."""
    go, inside = asyncio.Event(), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal inside
        assert len((await receive())["body"]) == 3000
        inside += 1
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(guard: Guard, parts: int = 3) -> dict[str, Any]:
        left, sent = parts, []

        async def receive() -> dict[str, Any]:
            nonlocal left
            left -= 1
            return {"type": "http.request", "body": b"x" * (3000 // parts), "more_body": left > 0}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
        scope = {"type": "http", "method": "POST", "path": COMPLETE, "headers": headers}
        await guard(scope, receive, send)
        return sent[0]

    async def storm() -> None:
        guard = Guard(app, ["localhost"], [], Limits(bodies=7000))
        first = [asyncio.ensure_future(ask(guard)) for _ in range(2)]
        while inside < 2:
            await asyncio.sleep(0)
        refused = await ask(guard)
        assert refused["status"] == 503 and (b"retry-after", b"1") in refused["headers"]
        go.set()
        assert [one["status"] for one in [*await asyncio.gather(*first), await ask(guard)]] == [200] * 3

    asyncio.run(storm())


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/pause"])
def test_routes_that_take_no_texts_take_short_bodies(live: Live, path: str) -> None:
    assert (
        live.ask("POST", path, b'{"lora_name": "' + b"a" * 20_000 + b'"}', {"Content-Type": "application/json"}).status
        == 413
    )


def test_what_is_remembered_is_bounded_by_bytes_and_by_count() -> None:
    kept: BoundedCache[tuple[int, ...]] = BoundedCache(100, most_bytes=50_000)
    for i in range(200):
        kept.put(("key", i), (i,))
    assert len(kept) == 100 and kept.get(("key", 99)) is None and kept.get(("key", 199)) == (199,)
    for i in range(50):
        kept.put("x" * 1000 + str(i), tuple(range(100)))
        assert kept.nbytes <= 50_000
    assert 5 <= len(kept) < 20 and kept.get("x" * 1000 + "49") is not None
    kept.put("large", tuple(range(10_000)))
    assert kept.get("large") is None and kept.nbytes <= 50_000
    kept.put("x" * 1000 + "49", (1,))  # again, and smaller: what it took is given back
    assert kept.nbytes == sum(footprint(key) + footprint(value) for key, (value, _) in kept._kept.items())


def test_conversations_are_remembered_within_their_bytes(live: Live) -> None:
    answered = live.core.generator.conversations._answered
    before = answered.most_bytes, answered.nbytes, len(answered)
    answered.most_bytes = before[1] + 20_000
    try:
        for i in range(6):
            body = {"messages": [{"role": "user", "content": f"{i} " + "bet " * 150}], "max_tokens": 2}
            assert live.ask("POST", CHAT, body).status == 200
            assert answered.nbytes <= answered.most_bytes
    finally:
        answered.most_bytes = before[0]
    assert len(answered) < before[2] + 6


@pytest.mark.parametrize(("tokens", "thread"), [(1, "server"), (40, "reader_0")])
def test_answers_of_many_numbers_are_written_beside_the_loop(
    live: Live, monkeypatch: pytest.MonkeyPatch, tokens: int, thread: str
) -> None:
    """A few hundred numbers with their texts take as long as some thousand bytes."""
    threads: list[str] = []
    usage = answers.usage
    monkeypatch.setattr(
        answers, "usage", lambda choices: (threads.append(threading.current_thread().name), usage(choices))[1]
    )
    body = {"prompt": "x", "max_tokens": tokens, "logprobs": 5, "ignore_eos": True}
    assert live.ask("POST", COMPLETE, body).status == 200
    assert threads == [thread]


def test_labels_of_adapters_that_are_gone_are_counted_together() -> None:
    served: set[str] = set()
    metrics = Metrics(lambda: served)
    for i in range(50):
        served = {f"run-{i}", "stays"}
        metrics.generated(f"run-{i}", 2)
        metrics.generated("stays", 1)
        metrics.generated(None, 1)
    text = metrics.text().decode()
    lines = [line for line in text.splitlines() if line.startswith("legos_generated_tokens_total{")]
    assert sorted(lines) == [
        'legos_generated_tokens_total{adapter=""} 50.0',
        'legos_generated_tokens_total{adapter="(unloaded)"} 98.0',
        'legos_generated_tokens_total{adapter="run-49"} 2.0',
        'legos_generated_tokens_total{adapter="stays"} 50.0',
    ]


# --- other pages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://127.0.0.1:{port}", "127.0.0.1:{port}", 200),
        ("http://LOCALHOST:{port}", "localhost:{port}", 200),
        ("http://localhost", "localhost:80", 200),
        ("https://localhost", "localhost", 200),  # a proxy with TLS
        ("http://[::1]:9", "[::1]:9", 200),
        ("http://localhost:3000", "localhost:{port}", 403),
        ("http://127.0.0.1", "127.0.0.1:{port}", 403),
        ("http://localhost:{port}", "127.0.0.1:{port}", 403),
        ("https://localhost:80", "localhost", 403),
        ("chrome-extension://localhost", "localhost", 403),
        ("ftp://localhost", "localhost", 403),
        ("http://localhost@evil.example", "localhost", 403),
        ("http://localhost.evil.example", "localhost", 403),
        ("localhost", "localhost", 403),
        ("http://", "localhost", 403),
        ("null", "localhost", 403),
        ("", "localhost", 403),
    ],
)
def test_pages_of_other_origins_change_nothing(live: Live, origin: str, host: str, status: int) -> None:
    names = {"Origin": origin.format(port=live.port), "Host": host.format(port=live.port)}
    request = head("POST", "/pause?mode=keep", Content_Length=0, **names)
    assert Connection(live.port).send(request).status() == status
    assert live.core.engine.worker.paused == (status == 200)
    if status == 200:
        live.ask("POST", "/resume")


def test_a_burst_of_connections_fits_in_the_descriptors_kept_free() -> None:
    """The loop accepts so many at once, before any can be replaced; with 2048 it ran out, and logged each one."""
    assert running.make_server(None, "127.0.0.1", 0).config.backlog < running._OWN_FILES
