"""Tool calls: how a conversation with tool calls is laid out, and how calls are parsed from a reply.

The format is the one of Hermes and Qwen, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`
(https://github.com/NousResearch/Hermes-Function-Calling).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

OPEN, CLOSE = "<tool_call>", "</tool_call>"
NAME, ARGUMENTS, CALLER = "tool_call.name", "tool_call.arguments", "assistant.silent"
"""Roles of the parts of an assistant's message that calls tools; CALLER marks one without any text."""
UNSUPPORTED = "tool calling is not supported by this model's chat template"
_WRITTEN = re.compile(re.escape(OPEN) + r'\s*\{"name": ?"\0", ?"arguments": ?\0\}\s*' + re.escape(CLOSE))


class ToolCall(NamedTuple):
    """One call; the arguments are a JSON object, written as `json.dumps` does."""

    name: str
    arguments: str


def spoken(text: str, calls: Iterable[ToolCall]) -> list[dict[str, str]]:
    """An assistant's message as parts for the renderer, each a role and a text."""
    parts = [
        {"role": role, "content": content}
        for call in calls
        for role, content in ((NAME, call.name), (ARGUMENTS, call.arguments))
    ]
    return [{"role": CALLER if parts and not text else "assistant", "content": text}, *parts]


def whole(roles: Sequence[str], contents: Sequence[str]) -> list[dict[str, Any]]:
    """Parts as messages for a chat template. The arguments of a call become the key of an object."""
    messages: list[dict[str, Any]] = []
    for role, content in zip(roles, contents, strict=True):
        if role == NAME:
            call = {"type": "function", "function": {"name": content, "arguments": {}}}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif role == ARGUMENTS:
            messages[-1]["tool_calls"][-1]["function"]["arguments"] = {content: 0}
        elif role == CALLER:
            messages.append({"role": "assistant", "content": ""})
        else:
            messages.append({"role": role, "content": content})
    return messages


def is_written_so(texts: Sequence[str]) -> bool:
    """Whether a template writes calls in this format; texts: its text around a call's name and arguments."""
    return len(texts) == 3 and _WRITTEN.search("\0".join(texts)) is not None


def canonical(arguments: str) -> str | None:
    """The arguments of a call in `ToolCall`'s form; None if they are not a JSON object."""
    try:
        value = json.loads(arguments)
        text = json.dumps(value, ensure_ascii=False)
        text.encode()  # an escape may stand for a lone surrogate, which no tokenizer can represent
    except (ValueError, RecursionError):
        return None
    return text if isinstance(value, dict) else None


def grammar(tools: Mapping[str, Any], markers: Mapping[str, int]) -> str:
    """llguidance's grammar for a reply that is one call.

    Args:
        tools: JSON schemas of the arguments by tool name.
        markers: the vocabulary's added tokens.
    """
    opening, closing = (f"<[{markers[text]}]>" if text in markers else json.dumps(text) for text in (OPEN, CLOSE))
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": schema},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, schema in tools.items()
    ]
    body = json.dumps({"anyOf": calls, "x-guidance": {"whitespace_pattern": " ?", "coerce_one_of": True}})
    return f'start: {opening} "\\n" call "\\n" {closing}\ncall: %json {body}\n'


class CallReader:
    """Splits a reply into text and calls as it arrives. Anything but a call of a known tool stays text.

    Args:
        names: the tools' names.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names, self._rest, self._called = names, "", False

    def push(self, piece: str, *, last: bool = False) -> tuple[str, list[ToolCall]]:
        """The text and complete calls that are certain after a piece."""
        self._rest += piece
        if self._called:  # white space between calls is not part of the text
            self._rest = self._rest.lstrip()
        text, calls = "", list[ToolCall]()
        while (at := self._rest.find(OPEN)) >= 0:
            end = self._rest.find(CLOSE, at)
            if end < 0 and not last:
                break
            stop = end + len(CLOSE) if end >= 0 else len(self._rest)
            call = self._read(self._rest[at + len(OPEN) : end if end >= 0 else stop])
            if call is None:
                text += self._rest[:stop]
            else:
                text += self._rest[:at].rstrip()
                calls.append(call)
            self._called = call is not None
            self._rest = self._rest[stop:].lstrip() if self._called else self._rest[stop:]
        certain = len(self._rest) if last else self._certain()
        self._called = self._called and not certain
        text, self._rest = text + self._rest[:certain], self._rest[certain:]
        return text, calls

    def _certain(self) -> int:
        """How many leading characters can no longer be part of a call or the white space before one."""
        at = self._rest.find(OPEN)
        if at < 0:
            at = next(i for i in range(len(self._rest) + 1) if OPEN.startswith(self._rest[i:]))
        return len(self._rest[:at].rstrip())

    def _read(self, text: str) -> ToolCall | None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in self.names:
            return None
        found = value.get("arguments", {})
        return ToolCall(value["name"], json.dumps(found, ensure_ascii=False)) if isinstance(found, dict) else None
