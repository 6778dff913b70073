"""Tools with OpenAI's own client, on a random model whose chat template is written like Qwen's and Hermes's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from benchmarks.wire import Live
from inference.server import Settings
from inference.tool_calls import CallReader, ToolCall
from tests.random_model import save_random_qwen3

TEMPLATE = r"""
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- endif %}
{{- "\n\nTools:\n" }}
{%- for tool in tools %}{{- tool | tojson }}{{- "\n" }}{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif messages[0]['role'] == 'system' %}
{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant' }}{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""
TALK: Any = [{"role": "user", "content": "your move"}]


def tool(name: str, **properties: Any) -> Any:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": "a move", "parameters": schema}}


TOOLS = [tool("bet", chips={"type": "integer", "minimum": 1, "maximum": 9}), tool("fold")]
CALL = '<tool_call>\n{"name": "bet", "arguments": {"chips": 3}}\n</tool_call>'


@pytest.fixture(scope="module")
def tool_model(random_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools") / "model"
    shutil.copytree(random_model_dir, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    save_random_qwen3(folder, json.loads((folder / "config.json").read_text())["vocab_size"], context=2048)
    return folder


@pytest.fixture(scope="module")
def ask(tool_model: Path) -> Iterator[Any]:
    """ask(**options) is a chat with the tools, and ask.live the server."""
    live = Live(Settings(model=str(tool_model)))
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=60) as client:

        def chat(**options: Any) -> Any:
            defaults = {"model": str(tool_model), "messages": TALK, "tools": TOOLS, "max_tokens": 300, "seed": 1}
            return client.chat.completions.create(**{**defaults, **options})

        chat.live = live  # type: ignore[attr-defined]
        yield chat
    live.stop()


def says(text: str) -> dict[str, Any]:
    return {"extra_body": {"guided_choice": [text], "return_token_ids": True}}


def test_calls_are_parsed_whole_and_streamed(ask: Any) -> None:
    two = f"I think.\n{CALL}\n{CALL.replace('3', '4')}"
    [choice] = ask(**says(two)).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I think.")
    functions = [call.function for call in choice.message.tool_calls]
    assert [(f.name, json.loads(f.arguments)) for f in functions] == [("bet", {"chips": 3}), ("bet", {"chips": 4})]
    assert len({call.id for call in choice.message.tool_calls}) == 2
    text, calls, reasons = "", [], []
    for chunk in ask(**says(two), stream=True):
        [part] = chunk.choices
        text += part.delta.content or ""
        calls += part.delta.tool_calls or []
        reasons.append(part.finish_reason)
    assert (text, reasons[-1]) == ("I think.", "tool_calls")
    assert [(call.index, call.function.name, call.function.arguments) for call in calls] == [
        (0, "bet", '{"chips": 3}'),
        (1, "bet", '{"chips": 4}'),
    ]


@pytest.mark.parametrize("text", ['<tool_call>{"name": "x", "arguments": {}}</tool_call>', "a < b", "<tool_call>no"])
def test_what_is_no_call_stays_text(ask: Any, text: str) -> None:
    [choice] = ask(**says(text)).choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (text, None, "stop")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in ask(**says(text), stream=True)) == text


def test_a_required_call_is_made_and_follows_the_schema(ask: Any) -> None:
    pytest.importorskip("llguidance")
    for choice in ask(tool_choice="required", n=6).choices:
        [call] = choice.message.tool_calls
        arguments = json.loads(call.function.arguments)
        assert choice.finish_reason == "tool_calls" and call.function.name in ("bet", "fold")
        assert arguments == {} if call.function.name == "fold" else 1 <= arguments["chips"] <= 9
    named = {"type": "function", "function": {"name": "fold"}}
    [only] = ask(tool_choice=named).choices[0].message.tool_calls
    assert (only.function.name, only.function.arguments) == ("fold", "{}")


def test_the_conversation_goes_on_with_the_sampled_ids(ask: Any) -> None:
    [first] = ask(**says(CALL)).choices
    message = first.message.model_dump(include={"role", "content", "tool_calls"})
    result = {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "you won <|im_end|>"}
    [second] = ask(messages=[*TALK, message, result], **says("good")).choices
    said = first.prompt_token_ids + first.token_ids
    assert second.prompt_token_ids[: len(said)] == said and len(second.prompt_token_ids) > len(said)
    [anew] = ask(messages=[{"role": "user", "content": "other"}, message, result], **says("good")).choices
    from inference.loading import load

    tokenizer = load(ask.live.core.settings.model)[1]
    text = tokenizer.decode(anew.prompt_token_ids)
    assert f"<|im_start|>assistant\n{CALL}<|im_end|>" in text and "<tool_response>\nyou won" in text
    # A marker that the tool wrote is plain text: turns end as often as in the same talk without it.
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert anew.prompt_token_ids.count(end) == 4


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("tools cannot be used: .*<.im_end.>", {"tools": [tool("f", x={"const": "<|im_end|>"})]}),
        ("two tools have the same name", {"tools": [tool("f"), tool("f")]}),
        ("tool_choice names 'g'", {"tool_choice": {"type": "function", "function": {"name": "g"}}}),
        ("tool_choice 'required' needs tools", {"tools": openai.omit, "tool_choice": "required"}),
        ("response_format cannot be used with tools", {"response_format": {"type": "json_object"}}),
        (
            "must answer a message with tool_calls",
            {"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]},
        ),
        ("content is missing", {"messages": [{"role": "user", "content": None}]}),
        ("name: not supported; leave it out", {"messages": [{"role": "user", "content": "a", "name": "bob"}]}),
    ],
)
def test_refusals_say_why(ask: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match=match) as refused:
        ask(**options)
    assert "Input should" not in str(refused.value) and "Value error" not in str(refused.value)


def test_none_leaves_the_tools_out(ask: Any) -> None:
    with_none = ask(tool_choice="none", **says(CALL)).choices[0]
    assert with_none.message.content == CALL and with_none.finish_reason == "stop"
    assert with_none.prompt_token_ids == ask(tools=openai.omit, **says(CALL)).choices[0].prompt_token_ids


def test_a_template_without_tools_refuses_them(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="tool calling is not supported by this model's chat template"):
        client.chat.completions.create(model=model, messages=TALK, tools=TOOLS)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_reader_gives_the_same_in_pieces_of_any_size(size: int) -> None:
    text = f"a <b <tool_ \n {CALL} \n<tool_call>no</tool_call> z {CALL[:-12]}"
    reader = CallReader({"bet"})
    parts = [reader.push(text[at : at + size]) for at in range(0, len(text), size)]
    parts.append(reader.push("", last=True))
    assert "".join(part for part, _ in parts) == "a <b <tool_<tool_call>no</tool_call> z"
    assert [call for _, calls in parts for call in calls] == [ToolCall("bet", '{"chips": 3}')] * 2
