"""Requests that mean harm: each is refused or served, no 5xx, no hang, no crash, and the next good one is the same.

The corpus follows what has been seen to break other servers: a stop that is a number, a bias beyond the vocabulary, a
template of the caller's, bodies that lie about their length, clients that vanish.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.wire import Connection, Live, head, post

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
SAY = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> bytes:
    return post(CHAT, {"messages": SAY, "max_tokens": 2} | fields)


def complete(**fields: Any) -> bytes:
    return post(COMPLETE, {"prompt": "hi", "max_tokens": 2} | fields)


def raw(text: str) -> bytes:
    """A completion request with a field as it is written, valid JSON or not."""
    return post(COMPLETE, f'{{"prompt": "hi", "max_tokens": 2, {text}}}'.encode())


def declared(length: object, body: bytes = b"{}") -> bytes:
    return head("POST", COMPLETE, Content_Type="application/json", Content_Length=length) + body


def chunked(body: bytes) -> bytes:
    return head("POST", COMPLETE, Content_Type="application/json", Transfer_Encoding="chunked") + body


SPIN = "{% for i in range(300000000) %}{% endfor %}"
WS = {"Connection": "Upgrade, close", "Upgrade": "websocket", "Sec_WebSocket_Key": "x==", "Sec_WebSocket_Version": 13}

LONE = {"enum": ["\ud800"]}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": LONE}}
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": LONE}}}
CALL = {"type": "function", "function": {"name": "f", "arguments": r'{"a": "\ud800"}'}}

# name: (what is sent, statuses that may come; 0: closed without an answer)
BODIES: dict[str, tuple[bytes, set[int]]] = {
    "malformed JSON": (post(CHAT, b'{"messages": ['), {400}),
    "an empty body": (declared(0, b""), {400}),
    "no body at all": (head("POST", COMPLETE, Content_Type="application/json"), {400}),
    "a list": (post(CHAT, []), {400}),
    "null": (post(CHAT, None), {400}),
    "a number": (post(COMPLETE, 7), {400}),
    "no messages": (post(CHAT, {"max_tokens": 2}), {400}),
    "empty messages": (chat(messages=[]), {400}),
    "messages of strings": (chat(messages=["hi"]), {400}),
    "a role of its own": (chat(messages=[{"role": "root", "content": "hi"}]), {400}),
    "content without end": (chat(messages=[{"role": "user", "content": None}]), {400}),
    "5,000 messages": (chat(messages=SAY * 5000), {400}),
    "invalid UTF-8": (post(CHAT, b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'), {400}),
    "UTF-16": (post(CHAT, json.dumps({"messages": SAY, "max_tokens": 2}).encode("utf-16")), {200, 400}),
    "NUL bytes": (post(CHAT, b"\0" * 1000), {400}),
    "100,000 nested arrays": (post(CHAT, b"[" * 100_000 + b"]" * 100_000), {400}),
    "100,000 nested objects": (post(CHAT, b'{"a":' * 100_000 + b"1" + b"}" * 100_000), {400}),
    "a lone surrogate": (raw(r'"stop": "\ud800"'), {400}),
    "a lone surrogate in a prompt": (post(COMPLETE, rb'{"prompt": "a\udfffb"}'), {400}),
    "a lone surrogate as a name": (raw(r'"\udc00": 1'), {400}),
    "a lone surrogate in a schema": (chat(response_format=SCHEMA), {400}),
    "a lone surrogate in a tool": (chat(tools=[{"type": "function", "function": TOOL}]), {400}),
    "a lone surrogate in a call": (chat(messages=[*SAY, {"role": "assistant", "tool_calls": [CALL]}]), {400}),
    "NaN": (raw('"temperature": NaN'), {400}),
    "Infinity": (raw('"top_p": Infinity'), {400}),
    "1e999": (raw('"temperature": 1e999'), {400}),
    "a number of 10,000 digits": (raw('"seed": ' + "9" * 10_000), {400}),
    "a temperature of 1e-300": (complete(temperature=1e-300), {200}),
    "a temperature of 5e-324": (complete(temperature=5e-324), {200}),
    "a temperature of 1e6": (complete(temperature=1e6), {200}),
    "a temperature below 0": (complete(temperature=-0.1), {400}),
    "a temperature in words": (complete(temperature="hot"), {400}),
    "max_tokens true": (complete(max_tokens=True), {400}),
    "max_tokens 0": (complete(max_tokens=0), {400}),
    "max_tokens 1.5": (complete(max_tokens=1.5), {400}),
    "max_tokens 2^70": (complete(max_tokens=1 << 70), {400}),
    "n 0": (complete(n=0), {400}),
    "n 10^9": (complete(n=10**9), {400}),
    "1,000 prompts": (complete(prompt=["a"] * 1000), {400}),
    "128 prompts of 128 choices": (complete(prompt=["a"] * 128, n=128), {400, 429}),
    "top_p 0": (complete(top_p=0), {400}),
    "top_k 2^31": (complete(top_k=1 << 31), {200}),
    "top_k 2^62": (complete(top_k=1 << 62), {400}),
    "min_p 2": (complete(min_p=2), {400}),
    "logprobs -1": (complete(logprobs=-1), {400}),
    "logprobs 10^6": (complete(logprobs=10**6), {400}),
    "seed 2^70": (complete(seed=1 << 70), {400}),
    "seed -1": (complete(seed=-1), {200}),
    "seed 2^64 - 1, n 3": (complete(seed=(1 << 64) - 1, n=3), {200}),
    "seed 1.5": (complete(seed=1.5), {400}),
    "stop 5": (complete(stop=5), {400}),
    "stop [1, 2]": (complete(stop=[1, 2]), {400}),
    "an empty stop": (complete(stop=""), {400}),
    "10,000 stops": (complete(stop=["x"] * 10_000), {400}),
    "a stop of a megabyte": (complete(stop="x" * (1 << 20)), {400}),
    "stop ids beyond the vocabulary": (complete(stop_token_ids=[999_999]), {400}),
    "stop ids below 0": (complete(stop_token_ids=[-1]), {400}),
    "bias beyond the vocabulary": (complete(logit_bias={"999999": 5}), {400}),
    "bias below 0": (complete(logit_bias={"-1": 5}), {400}),
    "bias for a word": (complete(logit_bias={"the": 5}), {400}),
    "bias of a bias": (complete(logit_bias={"5": {"5": 5}}), {400}),
    "bias of 10^300": (complete(logit_bias={"5": 1e300}), {400}),
    "bias for everything": (complete(logit_bias={str(i): -100 for i in range(5000)}), {400}),
    "bias against all": (complete(logit_bias={str(i): -100 for i in range(292)}), {200}),
    "an empty prompt": (complete(prompt=""), {400}),
    "an empty list of prompts": (complete(prompt=[]), {400}),
    "an empty list of ids": (complete(prompt=[[]]), {400}),
    "ids beyond the vocabulary": (complete(prompt=[5, 999_999]), {400}),
    "ids below 0": (complete(prompt=[-1]), {400}),
    "ids that are flags": (complete(prompt=[True, False]), {400}),
    "ids and texts": (complete(prompt=["a", 5]), {400}),
    "a prompt of 10 contexts": (complete(prompt=[7] * 5120), {400}),
    "a text of 10 contexts": (chat(messages=[{"role": "user", "content": "bet " * 5000}]), {400}),
    "a prompt that fills the context": (complete(prompt=[7] * 512), {400}),
    "a prompt that leaves one token": (complete(prompt=[7] * 511, max_tokens=50), {200}),
    "a text of 2 MB": (complete(prompt="x" * (2 << 20)), {400}),
    "a body of 5 MB": (complete(prompt="x" * (5 << 20)), {413}),
    "a template": (chat(chat_template=SPIN), {400}),
    "a template's options": (chat(chat_template_kwargs={"chat_template": SPIN}), {400}),
    "a template in a message": (chat(messages=[{"role": "user", "content": SPIN + "{{ ''.__class__ }}"}]), {200}),
    "prompt_embeds": (complete(prompt_embeds="gASVAAAA"), {400}),
    "adapters by path": (complete(adapters="/etc/passwd"), {400}),
    "a model by path": (complete(model="../../../../etc"), {404}),
    "a model with NUL": (complete(model="a\0b"), {404}),
    "a model of 300 characters": (complete(model="m" * 300), {400}),
    "a model that is a list": (complete(model=["x"]), {400}),
    "an unknown field": (complete(n_discard=-5), {400}),
    "a field of the prototype": (raw('"__proto__": {"n": 5}, "__class__": "x"'), {400}),
    "stream in words": (complete(stream="yes"), {400}),
    "no choice to guide": (complete(guided_choice=[]), {400}),
    "an empty choice": (complete(guided_choice=["", "a"]), {200, 400}),
    "one choice within another": (complete(guided_choice=["bet", "bet more"], max_tokens=40), {200}),
    "5,000 choices": (complete(guided_choice=[str(i) for i in range(5000)]), {400}),
    "a guided schema": (complete(guided_json={"type": "object", "properties": {"a": {"$ref": "#"}}}), {400}),
    "a guided pattern": (complete(guided_regex="(a+)+$"), {400}),
    "text/plain": (post(CHAT, {"messages": SAY}).replace(b"application/json", b"text/plain"), {415}),
    "a form": (post(CHAT, b"a=1").replace(b"application/json", b"application/x-www-form-urlencoded"), {415}),
    "no content type": (post(CHAT, {"messages": SAY}).replace(b"Content-Type", b"X-Type"), {415}),
    "tokenize nothing": (post("/tokenize", {}), {400}),
    "tokenize both": (post("/tokenize", {"prompt": "x", "messages": SAY}), {400}),
    "an unknown pause": (head("POST", "/pause?mode=never", Content_Length=0), {400}),
}
WIRE: dict[str, tuple[bytes, set[int]]] = {
    "Content-Length -1": (declared(-1), {400}),
    "Content-Length in words": (declared("many"), {400}),
    "two Content-Lengths": (
        head("POST", COMPLETE, Content_Type="application/json", Content_Length="2\r\nContent-Length: 3") + b"{}",
        {400},
    ),
    "Content-Length shorter than the body": (declared(1, b"{}" * 50), {400}),
    "Content-Length longer than the body": (declared(100), {408}),
    "Content-Length of 10^12": (declared(10**12), {413}),
    "Content-Length of 10^30": (declared(10**30), {400, 413}),
    "length and chunks": (
        head("POST", COMPLETE, Content_Type="application/json", Content_Length=2, Transfer_Encoding="chunked") + b"{}",
        {400},
    ),
    "chunks that do not end": (chunked(b"2\r\n{}\r\n"), {408}),
    "a chunk of a negative size": (chunked(b"-2\r\n{}\r\n0\r\n\r\n"), {400}),
    "a chunk size of 100 digits": (chunked(b"f" * 100 + b"\r\n{}"), {400}),
    "a chunk shorter than it says": (chunked(b"ff\r\n{}\r\n0\r\n\r\n"), {400, 408}),
    "an unknown transfer coding": (
        head("POST", COMPLETE, Content_Type="application/json", Transfer_Encoding="gzip") + b"x",
        {400, 501},
    ),
    "a header of 60 KB": (head("GET", "/v1/models", X_Filler="x" * 60_000), {431}),
    "2,000 headers": (head("GET", "/v1/models", **{f"X_{i}": "y" * 20 for i in range(2000)}), {431}),
    "a target of 60 KB": (head("GET", "/" + "x" * 60_000), {404, 431}),
    "a query of 20 KB": (head("GET", "/v1/models?" + "x" * 20_000), {200, 431}),
    "no Host": (b"GET /v1/models HTTP/1.1\r\n\r\n", {400}),
    "an evil Host": (head("GET", "/v1/models", Host="evil.example"), {400}),
    "a Host that begins well": (head("GET", "/v1/models", Host="127.0.0.1.evil.example"), {400}),
    "a Host with a user": (head("GET", "/v1/models", Host="127.0.0.1:80@evil.example"), {400}),
    "a Host in brackets": (head("GET", "/v1/models", Host="[::1]evil.example"), {400}),
    "two Hosts": (head("GET", "/v1/models", Host="127.0.0.1\r\nHost: evil.example"), {400}),
    "another Origin": (head("GET", "/v1/models", Origin="http://evil.example"), {403}),
    "an Origin of null": (head("GET", "/v1/models", Origin="null"), {403}),
    "an Origin that ends well": (head("GET", "/v1/models", Origin="http://evil.localhost"), {403}),
    "a preflight": (
        head("OPTIONS", CHAT, Origin="http://evil.example", Access_Control_Request_Method="POST"),
        {403},
    ),
    "a websocket": (head("GET", "/v1/models", **WS), {200, 400, 404, 426}),
    "an upgrade to h2c": (head("GET", "/v1/models", Connection="Upgrade, close", Upgrade="h2c"), {200, 400, 426}),
    "HTTP/2 in advance": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 0}),
    "HTTP/0.9": (b"GET /\r\n\r\n", {400}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), {400}),
    "PUT": (head("PUT", CHAT, Content_Length=2) + b"{}", {405}),
    "DELETE": (head("DELETE", "/v1/models"), {405}),
    "TRACE": (head("TRACE", "/v1/models"), {405}),
    "CONNECT": (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", {404, 405}),
    "a method of its own": (head("BREW", "/v1/models"), {405}),
    "an absolute target": (head("GET", "http://evil.example/v1/models"), {404}),
    "a path of dots": (head("GET", "/v1/../../etc/passwd"), {404}),
    "a path of encoded dots": (head("GET", "/%2e%2e/%2e%2e/etc/passwd"), {404}),
    "a NUL in a path": (head("GET", "/v1/models%00"), {404}),
    "a path that is no UTF-8": (head("GET", "/v1/%ff%fe"), {404}),
    "a head that does not end": (b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", {408}),
    "nothing": (b"", {408}),
}


LENGTH, CHUNKED, INNER = (
    "Content-Length: {}\r\n",
    "Transfer-Encoding: chunked\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)
SMUGGLED: dict[str, tuple[str, bytes]] = {
    "a length and chunks": (LENGTH.format(5) + CHUNKED, b"0\r\n\r\n" + INNER),
    "chunks and a length": (CHUNKED + LENGTH.format(5), b"0\r\n\r\n" + INNER),
    "two lengths": (LENGTH.format(0) + LENGTH.format(len(INNER)), INNER),
    "two lengths in one": (LENGTH.format("0, 5"), INNER),
    "a length with a sign": (LENGTH.format("+5"), b"{}   " + INNER),
    "a length in hexadecimal": (LENGTH.format("0x5"), b"{}   " + INNER),
    "a length with a space in it": (LENGTH.format("5 0"), b"{}   " + INNER),
    "a space before the colon": ("Content-Length : 5\r\n", b"{}   " + INNER),
    "chunks, twice": (CHUNKED + CHUNKED, b"0\r\n\r\n" + INNER),
    "chunks of another name": ("Transfer-Encoding: xchunked\r\n" + LENGTH.format(5), b"{}   " + INNER),
    "chunks and identity": ("Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n" + INNER),
    "a folded header": ("Transfer-Encoding:\r\n chunked\r\n" + LENGTH.format(5), b"0\r\n\r\n" + INNER),
    "a header in a header": ("X-A: b\nTransfer-Encoding: chunked\r\n" + LENGTH.format(5), b"0\r\n\r\n" + INNER),
    "a bare CR in a header": ("X-A: b\rTransfer-Encoding: chunked\r\n" + LENGTH.format(5), b"0\r\n\r\n" + INNER),
    "a chunk size with a space": (CHUNKED, b" 0\r\n\r\n" + INNER),
    "a chunk size with an underscore": (CHUNKED, b"0_0\r\n\r\n" + INNER),
    "a chunk that ends in a bare LF": (CHUNKED, b"2\r\n{}\n0\r\n\r\n" + INNER),
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_no_request_hides_in_another(live: Live, name: str) -> None:
    """Where two servers could disagree about where a request ends, the connection ends with the refusal."""
    fields, rest = SMUGGLED[name]
    start = f"POST {COMPLETE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{fields}\r\n"
    answer = Connection(live.port, 10.0).send(start.encode() + rest).rest()
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.split()[1] in (b"400", b"501"), answer[:500]
    assert b"connection: close" in answer.lower() and b"legos_answers" not in answer


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_that_end_in_a_bare_lf_make_one_request(live: Live, end: bytes) -> None:
    """Read leniently, as RFC 9112 allows; but what comes after is a request of its own, with its own refusals."""
    one = end.join([b"GET /health HTTP/1.1", b"Host: 127.0.0.1", b"", b""])
    other = end.join([b"GET /v1/models HTTP/1.1", b"Host: evil.example", b"Connection: close", b"", b""])
    answer = Connection(live.port, 10.0).send(one + other).rest()
    assert [part.split()[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_a_header_of_any_length_is_refused_or_read(live: Live) -> None:
    for size, status in ((15_000, {200}), (17_000, {431}), (40_000, {431}), (400_000, {431, 0})):
        request = head("GET", "/v1/models", **{"X_" + "n" * (size // 2): "v" * (size // 2)})
        try:
            assert Connection(live.port).send(request).status() in status
        except ConnectionError:
            assert size > 40_000  # refused before all of it was sent


@pytest.fixture(autouse=True)
def _quick_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    from inference.server import running

    monkeypatch.setattr(running._Protocol, "head_seconds", 1.0)


@pytest.mark.quick(28)
@pytest.mark.parametrize("name", [*BODIES, *WIRE])
def test_a_hostile_request_harms_nobody(live: Live, good: Callable[[], str], name: str) -> None:
    data, statuses = (BODIES | WIRE)[name]
    start = time.monotonic()
    connection = Connection(live.port, 10.0)
    try:
        connection.send(data)
    except ConnectionError:
        assert statuses & {413, 431}  # refused before all of it was sent
    answer = connection.rest().decode("latin-1")
    assert time.monotonic() - start < 10
    status = int(answer.split()[1]) if answer else 0
    assert status in statuses, answer[:500]
    if status >= 400:
        error = json.loads(answer.partition("\r\n\r\n")[2])["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == status
        assert not re.search(r"Traceback|File \"|object has no attribute|<class|pydantic", error["message"])
    good()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("when", ["before its tokens", "between its tokens"])
def test_clients_that_vanish_are_no_longer_worked_for(
    live: Live, good: Callable[[], str], stream: bool, how: str, when: str
) -> None:
    engine = live.core.engine
    request = complete(stream=stream, max_tokens=450, ignore_eos=True, n=4)
    go = threading.Event()

    def hold() -> None:
        """The engine stands still, so nothing ends by itself."""
        inside = threading.Event()
        engine.worker.call(lambda _: (inside.set(), go.wait(20)))
        assert inside.wait(10)

    try:
        if when == "before its tokens":
            hold()
        gone = [Connection(live.port).send(request) for _ in range(4)]
        live.until(lambda: engine.running == 16)
        if when == "between its tokens":
            live.until(lambda: live.holds()["rows"] > 0)
            hold()
        for connection in gone:
            getattr(connection, how)()
        if when == "between its tokens":
            live.until(lambda: engine.running == 0, 5.0)
        else:
            time.sleep(0.2)  # ids are not there yet; the server learns of the end while it waits for them
        steps = engine.worker.steps
    finally:
        go.set()
    live.until(lambda: not any(live.holds()[name] for name in ("requests", "rows", "listeners")), 5.0)
    assert engine.worker.steps - steps < 50  # of 450
    good()


def test_a_stream_that_ends_before_its_first_byte_is_no_longer_worked_for(live: Live, good: Callable[[], str]) -> None:
    """The answer's head waits for a full buffer when the client goes: the stream is cancelled and never started."""
    body = json.dumps({"prompt": "hi", "max_tokens": 450, "ignore_eos": True, "stream": True}).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    asgi = {"version": "3.0", "spec_version": "2.3"}
    scope = {"type": "http", "asgi": asgi, "http_version": "1.1", "method": "POST", "scheme": "http", "path": COMPLETE,
             "raw_path": COMPLETE.encode(), "query_string": b"", "root_path": "", "headers": headers}  # fmt: skip

    async def request() -> None:
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])
        full = asyncio.Event()

        async def receive() -> Any:
            for message in messages:
                return message
            await full.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            full.set()
            await asyncio.sleep(60)

        await live.app(scope, receive, send)

    steps = live.core.engine.worker.steps
    live.run(request())
    live.until(lambda: not any(live.holds()[name] for name in ("requests", "rows", "listeners")), 5.0)
    assert live.core.engine.worker.steps - steps < 50  # of 450
    good()


def test_what_is_streamed_to_a_reader_that_does_not_read_waits_without_harm(
    live: Live, good: Callable[[], str]
) -> None:
    slow = Connection(live.port)
    slow.send(complete(stream=True, max_tokens=450, ignore_eos=True, n=16, logprobs=20))
    live.until(lambda: live.core.engine.running == 16)
    good()
    slow.reset()
    live.until(lambda: live.core.engine.running == 0, 5.0)
