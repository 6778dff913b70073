"""What a refused request is told: in the API's words, at the place that is wrong, and nothing of how it was found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import HTTPException

from inference.server.bodies import read
from inference.server.protocol import ChatRequest, CompletionRequest
from inference.server.responses import ResponseRequest

HELLO = [{"role": "user", "content": "hello"}]
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (ChatRequest, {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.0.type: 'image_url'"),
        (ChatRequest, {"messages": [{"role": "frog", "content": "x"}]}, "messages.0.role: 'frog' is not supported"),
        (ChatRequest, {"messages": "hi"}, "messages: must be a list"),
        (ChatRequest, {"messages": []}, "messages: must have at least 1 items"),
        (ChatRequest, {}, "messages: this field is required"),
        (ChatRequest, {"messages": HELLO, "temperature": "hot"}, "temperature: must be a number"),
        (ChatRequest, {"messages": HELLO, "temperature": -1}, "temperature: must be at least 0"),
        (ChatRequest, {"messages": HELLO, "frog": 1}, "frog: this field is not supported"),
        (ChatRequest, {"messages": HELLO, "response_format": {"type": "xml"}}, "response_format: 'xml' is not"),
        (ChatRequest, {"messages": HELLO, "tools": [{"type": "x"}]}, "tools.0.type: 'x' is not supported"),
        (ChatRequest, {"messages": HELLO, "stop": [1]}, "stop.0: must be a text"),
        (ChatRequest, {"messages": HELLO, "suffix": "\ud800"}, "suffix: this field is not supported"),
        (CompletionRequest, {"prompt": 3}, "prompt: must be a text, or must be a list"),
        (CompletionRequest, {"prompt": "x", "suffix": "y"}, "suffix: not supported; leave it out"),
        (ResponseRequest, {"input": [{"type": "reasoning"}]}, "input.0.type: 'reasoning' is not"),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_api(kind: Any, body: Any, said: str) -> None:
    with pytest.raises(HTTPException) as refused:
        read(json.dumps(body).encode(), kind)
    assert refused.value.detail.startswith(said) and len(refused.value.detail) <= 500
    for word in ("Input should", "Value error", "function-after", "constrained", "literal[", "Item"):
        assert word not in refused.value.detail


def test_what_was_sent_is_repeated_in_part_only() -> None:
    with pytest.raises(HTTPException) as refused:
        read(json.dumps({"messages": [{"role": "f" * 1000, "content": "x"}]}).encode(), ChatRequest)
    assert "f" * 40 in refused.value.detail and "f" * 41 not in refused.value.detail
