"""POST /v1/responses: the stateless part of OpenAI's newer API, as a conversation with one reply."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from inference.server.answers import as_json
from inference.server.choices import Choice, usage
from inference.server.formats import JsonFormat, JsonSchema, TextFormat
from inference.server.generation import CompletionHandler
from inference.server.protocol import ChatRequest, TemplateOptions
from inference.server.texts import Name, Seed, Strict, Text, only
from inference.types import Completion

logger = logging.getLogger(__name__)


class ContentPart(Strict):
    """A part of a message: text from the user, or from an earlier reply sent back."""

    type: Literal["input_text", "output_text", "text"]
    text: Text
    annotations: Annotated[list[Any] | None, Field(max_length=0)] = None
    logprobs: Annotated[list[Any] | None, Field(max_length=0)] = None


class InputItem(Strict):
    """A message; `id` and `status` come from an earlier reply sent back."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[ContentPart], Field(max_length=256, fail_fast=True)]
    id: Name | None = None
    status: Name | None = None
    phase: Name | None = None

    @property
    def plain(self) -> dict[str, str]:
        """The message in the chat API's form."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text}


class SchemaFormat(JsonSchema):
    """JSON that matches a schema, with the fields of `json_schema` next to the type."""

    type: Literal["json_schema"]


class TextOptions(Strict):
    """Options for the reply's text."""

    format: Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")] = TextFormat(type="text")
    verbosity: Annotated[str | None, only("medium")] = None


class ResponseRequest(Strict):
    """A text or messages, and how the reply is sampled. Nothing is stored, so requests cannot refer to earlier
    responses.
    """

    model: Name | None = None
    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=4096, fail_fast=True)]
    instructions: Text | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=1 << 31)
    temperature: float | None = Field(default=None, ge=0, le=1e6)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stream: bool = False
    text: TextOptions = TextOptions()
    metadata: Annotated[dict[Name, Name], Field(max_length=16)] | None = None
    user: Name | None = None
    seed: Seed | None = None
    chat_template_kwargs: TemplateOptions | None = None
    # Values that change nothing are accepted; anything else is refused.
    store: Annotated[bool | None, only(False)] = None
    background: Annotated[bool | None, only(False)] = None
    previous_response_id: Annotated[str | None, only(None)] = None
    conversation: Annotated[str | None, only(None)] = None
    include: Annotated[list[str] | None, only([])] = None
    tools: Annotated[list[Any] | None, only([])] = None
    tool_choice: Annotated[str | None, only("auto")] = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int | None, only(0)] = None
    truncation: Annotated[str | None, only("disabled")] = None
    _chat: ChatRequest = PrivateAttr()

    @model_validator(mode="after")
    def _as_chat(self) -> ResponseRequest:
        said = (
            [{"role": "user", "content": self.input}] if isinstance(self.input, str) else [i.plain for i in self.input]
        )
        told = [{"role": "system", "content": self.instructions}] if self.instructions else []
        form = self.text.format
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": told + said,
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "stream": self.stream,
            "chat_template_kwargs": self.chat_template_kwargs,
        }
        if isinstance(form, SchemaFormat):
            schema = form.model_dump(by_alias=True, exclude={"type"})
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:
            fields["response_format"] = {"type": form.type}
        self._chat = ChatRequest.model_validate(fields)
        return self

    @property
    def chat(self) -> ChatRequest:
        """The equivalent request to /v1/chat/completions."""
        return self._chat


class GrowingResponse:
    """The answer to a request, as it grows.

    Args:
        body: the request.
        model: the model name in the answer.
    """

    def __init__(self, body: ResponseRequest, model: str) -> None:
        self.body, self.model = body, model
        self.id, self.item_id = f"resp_{secrets.token_hex(12)}", f"msg_{secrets.token_hex(12)}"
        self.created, self._number = int(time.time()), -1

    def whole(self, choice: Choice) -> bytes:
        """The answer to a request that does not stream."""
        return as_json(self._response(choice)).encode()

    async def events(
        self, generator: CompletionHandler, request_id: int, choice: Choice
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events; closing it early ends the completion."""
        place = {"item_id": self.item_id, "output_index": 0, "content_index": 0}
        item = {"output_index": 0}
        start = time.perf_counter()
        try:
            yield self._event("response.created", response=self._response(None))
            yield self._event("response.in_progress", response=self._response(None))
            yield self._event("response.output_item.added", **item, item=self._message("", "in_progress"))
            yield self._event("response.content_part.added", **place, part=_part(""))
            first = True
            async for event in generator.engine.events(request_id):
                if first:
                    generator.metrics.first_token.observe(time.perf_counter() - start)
                    first = False
                if piece := generator.take(choice, event):
                    yield self._event("response.output_text.delta", **place, delta=piece, logprobs=[])
                if not isinstance(event, Completion):
                    continue
                if fault := choice.fault() or ("generation failed" if event.finish_reason == "error" else ""):
                    yield self._event("error", code="server_error", message=fault, param=None)
                    return
            generator.metrics.request_seconds.observe(time.perf_counter() - start)
            done = self._response(choice)
            yield self._event("response.output_text.done", **place, text=choice.said, logprobs=[])
            yield self._event("response.content_part.done", **place, part=_part(choice.said))
            yield self._event("response.output_item.done", **item, item=done["output"][0])
            yield self._event(f"response.{done['status']}", response=done)
        except Exception:  # the status has been sent: an event is the only way left to report it
            logger.exception("a stream failed")
            yield self._event("error", code="server_error", message="internal error; see the server's log", param=None)
        finally:
            generator.engine.abort(request_id)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return f"event: {kind}\ndata: {as_json({'type': kind, 'sequence_number': self._number, **fields})}\n\n".encode()

    def _message(self, text: str, status: str) -> dict[str, Any]:
        content = [_part(text)] if status != "in_progress" else []
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(self, choice: Choice | None) -> dict[str, Any]:
        """The object of the API: the request's settings and, once a choice is done, its result."""
        body = self.body
        facts: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": body.temperature,
            "text": {"format": body.text.format.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": "auto",
            "tools": [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None,
        }
        if choice is None or choice.done is None:
            return facts
        done, cut = choice.done, choice.reason != "stop"
        status = "incomplete" if cut else "completed"
        counts = usage([choice])
        why = "max_output_tokens" if choice.reason == "length" else choice.reason
        return facts | {
            "status": status,
            "incomplete_details": {"reason": why} if cut else None,
            "output": [self._message(choice.said, status)],
            "usage": {
                "input_tokens": counts["prompt_tokens"],
                "input_tokens_details": counts["prompt_tokens_details"],
                "output_tokens": counts["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counts["total_tokens"],
            },
            "adapter": done.adapter,
            "policy_version": done.policy_version,
            "adapter_digest": done.adapter_digest,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
