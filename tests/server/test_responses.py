"""/v1/responses with OpenAI's own client: the stateless subset, whole and streamed, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from benchmarks.wire import Live

ASKED = "your move"
SEED = {"seed": 3}
SCHEMA = {
    "type": "object",
    "properties": {"bet": {"type": "boolean"}},
    "required": ["bet"],
    "additionalProperties": False,
}
MOVE: Any = {"format": {"type": "json_schema", "name": "move", "schema": SCHEMA, "strict": True}}


def respond(client: openai.OpenAI, model: str, **options: Any) -> Any:
    options = {"input": ASKED, "max_output_tokens": 12, "extra_body": SEED} | options
    return client.responses.create(model=model, **options)


def test_it_says_what_a_chat_says(client: openai.OpenAI, model: str) -> None:
    talk = [{"role": "system", "content": "be short"}, {"role": "user", "content": ASKED}]
    said = client.chat.completions.create(model=model, messages=talk, max_tokens=12, seed=3, temperature=0.7)  # type: ignore[arg-type]
    options: dict[str, Any] = {"instructions": "be short", "temperature": 0.7, "metadata": {"game": "kuhn"}}
    reply = respond(client, model, **options)
    assert reply.output_text == said.choices[0].message.content
    assert (reply.object, reply.model, reply.instructions, reply.temperature) == ("response", model, "be short", 0.7)
    assert reply.metadata == {"game": "kuhn"} and not reply.tools and reply.policy_version == 0
    [item] = reply.output
    assert (item.type, item.role, [part.type for part in item.content]) == ("message", "assistant", ["output_text"])
    usage, theirs = reply.usage, said.usage
    assert theirs is not None and usage.total_tokens == usage.input_tokens + usage.output_tokens == theirs.total_tokens
    # the same as messages, in parts and with an item of an earlier reply
    parts = [{"type": "input_text", "text": "your "}, {"type": "input_text", "text": "move"}]
    again = respond(
        client,
        model,
        input=[{"role": "system", "content": "be short"}, {"role": "user", "content": parts}],
        temperature=0.7,
    )
    assert again.output_text == reply.output_text and again.id != reply.id


def test_how_it_ends(client: openai.OpenAI, model: str) -> None:
    cut = respond(client, model, max_output_tokens=1, text=MOVE)
    assert (cut.status, cut.output[0].status, cut.usage.output_tokens) == ("incomplete", "incomplete", 1)
    assert cut.incomplete_details.reason == "max_output_tokens"
    done = respond(client, model, max_output_tokens=200, text=MOVE)
    assert (done.status, done.output[0].status, done.incomplete_details) == ("completed", "completed", None)


def test_a_reply_goes_back_as_it_came(client: openai.OpenAI, model: str) -> None:
    first = respond(client, model)
    talk: list[Any] = [{"role": "user", "content": ASKED}, *first.output, {"role": "user", "content": "and now?"}]
    second = respond(client, model, input=talk)
    assert second.usage.input_tokens > first.usage.total_tokens and second.output_text


def test_the_events_of_a_stream(client: openai.OpenAI, model: str) -> None:
    respond(client, model)  # from now on its beginning is kept
    whole = respond(client, model)
    events = list(respond(client, model, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert {*kinds[4:-4]} == {"output_text.delta"} and len(deltas) > 1
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", whole.status]
    assert "".join(deltas) == events[-4].text == whole.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert events[0].response.status == "in_progress" and events[-1].response.usage == whole.usage


def test_its_streams_count_in_the_time_to_the_first_token(live: Live, client: openai.OpenAI, model: str) -> None:
    def seen() -> float:
        return float(live.core.metrics.registry.get_sample_value("legos_first_token_seconds_count"))

    before = seen()
    list(respond(client, model, stream=True))
    assert seen() == before + 1
    respond(client, model)
    assert seen() == before + 1, "without a stream, nobody sees a first token"


def test_json_that_a_schema_describes(client: openai.OpenAI, model: str) -> None:
    options: dict[str, Any] = {"model": model, "input": ASKED, "text": MOVE, "extra_body": SEED}
    reply = client.responses.create(**options)
    assert reply.text is not None and reply.text.format is not None and reply.text.format.type == "json_schema"
    assert json.loads(reply.output_text) in ({"bet": True}, {"bet": False})
    with client.responses.stream(**options) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == reply.output_text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id: not supported; leave it out"),
        ({"store": True}, "store: not supported; leave it out, or give false"),
        ({"background": True}, "background: not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools: not supported"),
        ({"reasoning": {"effort": "low"}}, "reasoning: this field is not supported"),
        ({"truncation": "auto"}, "truncation: not supported"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "2"}]}, "input"),
        ({"input": []}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_is_refused_is_named(client: openai.OpenAI, model: str, options: Any, said: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, model, **options)
    assert said in refused.value.message and "Value error" not in refused.value.message


def test_it_is_bounded_and_unknown_models_are_none(live: Live, client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError):
        respond(client, "nobody")
    long = live.ask("POST", "/v1/responses", {"model": model, "input": "a" * (1 << 20), "max_output_tokens": 1})
    assert long.status == 400
    text = [{"role": "user", "content": "x"}] * 5000
    assert live.ask("POST", "/v1/responses", {"model": model, "input": text}).status == 400
    nothing = live.ask("POST", "/v1/responses", {"model": model})
    assert nothing.status == 400 and b"input: this field is required" in nothing.body
