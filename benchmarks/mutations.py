"""Almost valid requests: good ones for every route, randomly changed in JSON, bytes or headers."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.0, -0.0, 1e-320, 1e308, float("nan"), float("inf"),
    -1e308, "", " ", "\0", "\ud800", "\u202e", "🂡" * 40, "<|im_end|>", "a" * 5000, "../../etc/passwd", "file:///etc/passwd",
    "http://127.0.0.1:1/", "{{ ''.__class__ }}", "%s%n%00", "__proto__", "none", "-1", "1e999", "NaN", [], {}, [[]],
    [{}], [None], [0] * 2000, ["a"] * 2000, [[7] * 3] * 40, {"a": {"a": {"a": {}}}}, {str(i): i for i in range(200)},
)  # fmt: skip
PIECES = (
    b"\0",
    b"\xff",
    b"\r\n",
    b"\n\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"1e999",
    b"-",
    b"\xed\xa0\x80",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW", "get", "POST\t")
HEADERS = (
    ("Content-Type", "text/plain"), ("Content-Type", "application/json; charset=utf-16"), ("Content-Encoding", "gzip"),
    ("Expect", "100-continue"), ("Upgrade", "websocket"), ("Connection", "keep-alive, Upgrade"), ("Range", "bytes=0-9"),
    ("Origin", "http://127.0.0.1"), ("Origin", "null"), ("Host", "evil.example"), ("X-Forwarded-For", "1.2.3.4"),
    ("Authorization", "Bearer x"), ("X-Content-SHA256", "0" * 64), ("Transfer-Encoding", "gzip"), ("Te", "trailers"),
    ("Cookie", "a=b" * 500), ("X-A", "\xff\xfe"), ("Accept", "*/*;q=9"), ("If-Match", "*"), ("Trailer", "Host"),
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A request before it is bytes."""

    method: str
    path: str
    value: Any = None
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())

    def to_bytes(self, draw: random.Random | None = None) -> bytes:
        """The bytes to send; with `draw` the length may be a lie."""
        body = self.body
        if body is None:
            body = b"" if self.value is None else json.dumps(self.value).encode()
        length: Any = len(body)
        if draw is not None and draw.random() < 0.03:
            length = draw.choice([length + 1, max(0, length - 1), -1, "", "x", f"{length}, {length}", 10**12])
        fields = [("Host", "127.0.0.1"), ("Connection", "close"), *self.headers, ("Content-Length", length)]
        if self.value is not None:
            fields.append(("Content-Type", "application/json"))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + body


def good(adapter: bytes) -> list[Shape]:
    """A good request for every route, several where there are options. `adapter`: bytes that may be published."""
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    options = {
        "max_tokens": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.01, "seed": 3, "stop": ["x"], "n": 2,
        "logit_bias": {"7": 1.5}, "stop_token_ids": [9], "return_token_ids": True, "user": "u",
    }  # fmt: skip
    guided = {"guided_choice": ["bet", "pass"], "stream": True, "stream_options": {"include_usage": True}}
    digest = (("X-Content-SHA256", hashlib.sha256(adapter).hexdigest()),)
    return [
        Shape("POST", "/v1/completions", {"prompt": "hi", **options, "logprobs": 2}),
        Shape("POST", "/v1/completions", {"prompt": [[5, 6], [7]], "max_tokens": 2, "stream": True}),
        Shape("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 4, "guided_token_ids": [[5, 6], [7]]}),
        Shape("POST", "/v1/chat/completions", {"messages": said, **options, "logprobs": True, "top_logprobs": 2}),
        Shape("POST", "/v1/chat/completions", {"messages": said, "max_completion_tokens": 3, **guided}),
        Shape(
            "POST", "/v1/responses", {"input": "hi", "instructions": "s", "max_output_tokens": 2, "temperature": 0.7}
        ),
        Shape(
            "POST",
            "/v1/responses",
            {"input": [{"role": "user", "content": "hi"}], "max_output_tokens": 2, "stream": True},
        ),
        Shape("POST", "/tokenize", {"prompt": "hi"}),
        Shape("POST", "/tokenize", {"messages": said}),
        Shape("POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "a", "version": 3, "mode": "pin"}),
        Shape("POST", "/v1/unload_lora_adapter", {"lora_name": "a"}),
        Shape("PUT", "/v1/adapters/a?scale=1&version=5&mode=keep", None, adapter, digest),
        Shape("DELETE", "/v1/adapters/a"),
        Shape("POST", "/pause?mode=keep"),
        Shape("POST", "/resume"),
        *(
            Shape("GET", path)
            for path in ("/health", "/ready", "/metrics", "/is_paused", "/v1/models", "/v1/legos/info")
        ),
        Shape("GET", "/openapi.json"),
    ]


def mutate(shape: Shape, draw: random.Random, others: list[Shape]) -> bytes:
    """The bytes of a request with one to four changes."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if shape.value is not None and draw.random() < 0.7:
            shape = replace(shape, value=_other_value(json.loads(json.dumps(shape.value)), draw, others))
        elif draw.random() < 0.5:
            shape = _other_head(shape, draw)
        else:
            body = shape.body if shape.value is None else json.dumps(shape.value).encode()
            shape = replace(shape, value=shape.value or {}, body=_other_bytes(body or b"", draw))
    data = shape.to_bytes(draw)
    return _other_bytes(data, draw) if draw.random() < 0.05 else data


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


def _other_value(value: Any, draw: random.Random, others: list[Shape]) -> Any:
    places = _places(value)
    if not places or draw.random() < 0.03:
        return draw.choice(HOSTILE)
    container, key = draw.choice(places)
    changes: list[Callable[[], Any]] = [
        lambda: container.__setitem__(key, draw.choice(HOSTILE)),
        lambda: container.__setitem__(key, [container[key]] * draw.choice([1, 2, 200])),
        lambda: container.__setitem__(key, {"a": container[key]}),
        lambda: container.__delitem__(key),
        lambda: container.__setitem__(key, draw.choice(draw.choice(_places_of(others)))),
    ]
    if isinstance(container, dict):
        changes.append(lambda: container.__setitem__(str(draw.choice(HOSTILE))[:300], draw.choice(HOSTILE)))
    draw.choice(changes)()
    return value


def _places_of(others: list[Shape]) -> list[list[Any]]:
    return [[container[key] for container, key in _places(one.value)] for one in others if one.value] or [list(HOSTILE)]


def _other_head(shape: Shape, draw: random.Random) -> Shape:
    kind = draw.randrange(4)
    if kind == 0:
        return replace(shape, method=draw.choice(METHODS))
    if kind == 1:
        return replace(shape, headers=(*shape.headers, draw.choice(HEADERS)))
    if kind == 2:
        return replace(shape, headers=shape.headers[1:])
    at = draw.randrange(len(shape.path) + 1)
    what = draw.choice(["%00", "%2e%2e/", "/", "?", "&", "=", "%", "..", "é", "x" * 300, ";", "#", "-1", "1e9", "\\"])
    return replace(shape, path=shape.path[:at] + what + shape.path[at + draw.randrange(3) :])


def _other_bytes(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    end = min(len(data), start + draw.choice([0, 1, 1, 2, 8, 64]))
    middle = draw.choice([b"", draw.choice(PIECES), draw.choice(PIECES) * 50, data[start:end] * 3, draw.randbytes(4)])
    return data[:start] + middle + data[end:]
