"""JSON mode and JSON schemas: every reply that ends follows its schema, and no schema stalls the server."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Literal

import numpy as np
import openai
import pydantic
import pytest

from benchmarks.wire import Live
from inference.server.grammars import GrammarError, Grammars
from inference.server.guides import Guides

pytest.importorskip("llguidance")
TALK: Any = [{"role": "user", "content": "your move"}]
MOVE: Any = {
    "type": "object",
    "properties": {"move": {"enum": ["bet", "pass"]}, "chips": {"type": "integer", "minimum": 0, "maximum": 20}},
    "required": ["move", "chips"],
    "additionalProperties": False,
}


def schema(value: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "move", "schema": value, "strict": True}}


def chat(client: openai.OpenAI, model: str, **options: Any) -> Any:
    return client.chat.completions.create(
        **{"model": model, "messages": TALK, "max_tokens": 300, "seed": 5, "response_format": schema(MOVE), **options}
    )


def test_replies_follow_their_schema_whole_and_streamed(client: openai.OpenAI, model: str) -> None:
    choices = chat(client, model, n=6, extra_body={"return_token_ids": True}).choices
    values = [json.loads(choice.message.content) for choice in choices]
    assert {choice.finish_reason for choice in choices} == {"stop"}
    assert all(value.keys() == {"move", "chips"} and 0 <= value["chips"] <= 20 for value in values)
    assert {value["move"] for value in values} == {"bet", "pass"}
    streamed = [""] * 6
    for chunk in chat(client, model, n=6, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == [choice.message.content for choice in choices]
    assert all(np.isfinite(choice.token_logprobs).all() for choice in choices)


class Move(pydantic.BaseModel):
    move: Literal["bet", "pass"]
    chips: int = pydantic.Field(ge=0, le=20)


def test_openais_client_parses_into_a_model(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.parse(model=model, messages=TALK, max_tokens=300, seed=2, response_format=Move)
    assert isinstance(reply.choices[0].message.parsed, Move)


def test_json_mode_writes_an_object_and_other_requests_run_beside_it(client: openai.OpenAI, model: str) -> None:
    bias = {"1": -100.0}
    alone = chat(client, model, response_format=openai.omit, max_tokens=20, logit_bias=bias).choices[0].message.content
    found: list[Any] = []
    threads = [threading.Thread(target=lambda s=s: found.append(chat(client, model, seed=s, **JSON))) for s in range(6)]
    for thread in threads:
        thread.start()
    beside = chat(client, model, response_format=openai.omit, max_tokens=20, logit_bias=bias)
    for thread in threads:
        thread.join()
    assert beside.choices[0].message.content == alone
    for reply in found:
        text, reason = reply.choices[0].message.content, reply.choices[0].finish_reason
        assert text.startswith("{") and (reason == "length" or isinstance(json.loads(text), dict))
    assert len(found) == 6


JSON: Any = {"response_format": {"type": "json_object"}, "max_tokens": 40}

_DEEP: Any = {"type": "string"}
for _ in range(90):
    _DEEP = {"type": "object", "properties": {"a": _DEEP}}
REFUSED = {
    "too deep": _DEEP,
    "a huge enum": {"enum": [f"value {i * 7919}" for i in range(8000)]},
    "a loop": {"$ref": "#"},
    "a file": {"$ref": "file:///etc/passwd"},
    "an address": {"$ref": "http://127.0.0.1:9/schema.json"},
    "large products": {"type": "integer", "multipleOf": 99999989, "minimum": 1, "maximum": 10**300},
    "all of any": {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 99 - i}]} for i in range(20)]},
    "many names": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(900)}},
    "a lookahead": {"type": "string", "pattern": "(?=a)b"},
    "not implemented": {"not": {"type": "string"}},
    "no schema": {"type": "nonsense"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_schemas_are_refused_in_time_and_health_is_answered(
    live: Live, client: openai.OpenAI, model: str, name: str
) -> None:
    waits: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            start = time.process_time()  # what the server computes meanwhile, on any thread
            assert live.ask("GET", "/health").status == 200
            waits.append(time.process_time() - start)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        with pytest.raises(openai.BadRequestError, match=r"cannot be followed: |became too complex after"):
            chat(client, model, response_format=schema(REFUSED[name]), max_tokens=4)
    finally:
        done.set()
        thread.join()
    assert max(waits) < 1.0, max(waits)  # usually milliseconds


def test_slow_compilation_ends_by_the_clock_and_the_queue_has_an_end(
    live: Live, client: openai.OpenAI, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr("inference.server.guides.SECONDS", 0.2)
    monkeypatch.setattr(Grammars, "schema", lambda self, schema, after=None: release.wait(10))
    try:
        with pytest.raises(openai.BadRequestError, match=r"more than 0\.2 s"):
            chat(client, model)
        monkeypatch.setattr("inference.server.guides.MOST_WAITING", 0)
        with pytest.raises(openai.RateLimitError, match="grammars are waiting"):
            chat(client, model)
        monkeypatch.setattr(live.core, "guides", Guides(None))
        monkeypatch.setattr(live.core.generator, "guides", live.core.guides)
        with pytest.raises(openai.APIStatusError, match="needs llguidance on the server: uv sync") as missing:
            chat(client, model)
        assert missing.value.status_code == 501
    finally:
        release.set()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("guided choice", {"extra_body": {"guided_choice": ["a"]}}),
        ("ignore_eos", {"extra_body": {"ignore_eos": True}}),
        ("65536", {"response_format": schema({"enum": ["x" * 70_000]})}),
    ],
)
def test_what_cannot_be_had_together_is_refused(
    client: openai.OpenAI, model: str, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError, match=name):
        chat(client, model, **options)


@pytest.fixture(scope="module")
def grammars(random_model: tuple[Any, Any]) -> Grammars:
    network, tokenizer = random_model
    return Grammars(tokenizer, network.args.vocab_size, 2)


def test_equal_schemas_are_one_grammar_and_old_ones_are_forgotten(grammars: Grammars) -> None:
    assert grammars.schema(MOVE) is grammars.schema(dict(MOVE))
    assert grammars.schema(MOVE) is not grammars.schema(MOVE, after=4)
    for i in range(80):
        grammars.schema({"const": i})
    assert len(grammars._compiled) == 64


def test_matchers_that_were_dropped_are_made_anew_from_the_tokens(grammars: Grammars) -> None:
    grammar, said, seen = grammars.schema(MOVE), [], []
    rng = np.random.default_rng(0)
    while not said or said[-1] != grammars.end_id:
        seen.append(grammar.ids_after(said))
        said.append(int(rng.choice(seen[-1])))
    grammars.states.clear()
    for i in reversed(range(len(said))):
        assert (grammar.ids_after(said[:i]) == seen[i]).all()
    for i in range(300):
        grammar.ids_after([grammars.end_id, i])
    assert len(grammars.states) <= 256


def test_it_begins_after_a_thought(grammars: Grammars, random_model: tuple[Any, Any]) -> None:
    close = 4
    grammar = grammars.schema(MOVE, after=close)
    free = grammar.ids_after([40, 41])
    assert len(free) == grammars.vocab - 1 and grammars.end_id not in free
    assert (grammar.ids_after([40, close]) == grammars.schema(MOVE).ids_after([])).all()


def test_a_grammar_that_gets_too_complex_ends_its_own_reply_only(grammars: Grammars) -> None:
    grammar = grammars.schema(MOVE)
    wrong = [40]  # no JSON begins like this: the matcher fails as it does when it runs out of fuel
    assert list(grammar.ids_after(wrong)) == [grammars.end_id]
    assert grammar.fault(wrong) and not grammar.fault([])
    with pytest.raises(GrammarError, match="nested too deep"):
        loop: Any = {}
        for _ in range(100_000):
            loop = {"a": loop}
        grammars.schema(loop)
