"""Tools and tool messages in the form of OpenAI's API."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from inference.server.texts import Name, Schema, Strict, Text, only
from inference.tool_calls import ToolCall, canonical, spoken

MAX_TOOLS, MAX_TOOL_BYTES = 128, 64 << 10
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class TextPart(Strict):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: Text


class CalledFunction(Strict):
    """A function's name, and its arguments as JSON."""

    name: FunctionName
    arguments: Text


class MadeCall(Strict):
    """A call that an earlier reply made."""

    id: Name | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(max_length=256, fail_fast=True)] | None = None
    name: Annotated[None, only(None)] = None
    tool_calls: Annotated[list[MadeCall], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_call_id: Name | None = None

    @model_validator(mode="after")
    def _agree(self) -> ChatMessage:
        if self.content is None and not self.tool_calls:
            raise ValueError("content is missing; only an assistant's message with tool_calls may have none")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls belong to the role assistant, got {self.role}")
        for call in self.tool_calls or ():
            if canonical(call.function.arguments) is None:
                got = call.function.arguments
                raise ValueError(
                    f"the arguments of a tool call must be a JSON object in valid Unicode, got {got!r:.60}"
                )
        return self

    def plain(self) -> list[dict[str, str]]:
        """Roles and texts, for the renderer."""
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        if self.tool_calls:
            made = [call.function for call in self.tool_calls]
            return spoken(text, [ToolCall(one.name, canonical(one.arguments) or "{}") for one in made])
        return [{"role": "system" if self.role == "developer" else self.role, "content": text}]


def dialogue(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """Messages as parts for the renderer, each a role and a text."""
    return [part for message in messages for part in message.plain()]


def _answers_calls(messages: list[ChatMessage]) -> list[ChatMessage]:
    for before, message in itertools.pairwise([None, *messages]):
        called = before is not None and (before.tool_calls or before.role == "tool")
        if message is not None and message.role == "tool" and not called:
            raise ValueError("a message of the role tool must answer a message with tool_calls")
    return messages


Messages = Annotated[
    list[ChatMessage], Field(min_length=1, max_length=4096, fail_fast=True), AfterValidator(_answers_calls)
]


class Function(Strict):
    """A function that the assistant may call; `parameters` is a JSON schema."""

    name: FunctionName
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool; only functions are supported."""

    type: Literal["function"]
    function: Function

    def plain(self) -> dict[str, Any]:
        """The tool in the form that chat templates take."""
        one = self.function
        parts = {"name": one.name, "description": one.description, "parameters": one.parameters or {"type": "object"}}
        return {"type": "function", "function": {key: value for key, value in parts.items() if value is not None}}


class ChosenFunction(Strict):
    """The name of a function."""

    name: FunctionName


class NamedToolChoice(Strict):
    """The one function that must be called."""

    type: Literal["function"]
    function: ChosenFunction


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


def check_tools(tools: list[Tool], choice: ToolChoice | None) -> None:
    """Raises ValueError if tools are too large or share a name, or if the choice is not among them."""
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ValueError("two tools have the same name")
    try:
        size = len(json.dumps([tool.plain() for tool in tools]))
    except RecursionError:
        raise ValueError("tools are nested too deeply") from None
    if size > MAX_TOOL_BYTES:
        raise ValueError(f"tools have {size} bytes; at most {MAX_TOOL_BYTES} are accepted")
    if isinstance(choice, NamedToolChoice) and choice.function.name not in names:
        raise ValueError(f"tool_choice names {choice.function.name!r}, which is not among the tools")
    if choice == "required" and not tools:
        raise ValueError("tool_choice 'required' needs tools")
