"""What requests and errors look like: OpenAI's, plus token ids, policy versions and allowed answers.

Everything is strict and bounded, so that a request either means what it says or is refused. Fields of OpenAI's API
that would change an answer and are not implemented are refused unless they have the value that changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from inference.types import NUMBERS, SamplingParams

MAX_CHOICES = 128
MAX_TEXT = 1 << 20
"""Bytes of text in one request, all of it together; one text has no more characters either."""


def _writable(text: str) -> str:
    """Refuses lone surrogates, which no tokenizer and no answer can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text must be valid Unicode, without lone surrogates") from error
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_writable)]
Name = Annotated[str, Field(max_length=256), AfterValidator(_writable)]
# Lists stop at their first error: collecting those of a long one takes minutes.
TokenIds = Annotated[
    list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(min_length=1, max_length=1 << 20, fail_fast=True)
]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
ManyIds = Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
StopText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_writable)]


class Strict(BaseModel):
    """Unknown fields, other types and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TextPart(Strict):
    """A part of a message; only text is understood."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(max_length=256, fail_fast=True)]
    name: None = None

    def plain(self) -> dict[str, str]:
        """Role and text, as the renderer takes them."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


def _conversation(messages: Sequence[Message]) -> str:
    return "".join(message.plain()["content"] for message in messages)


class TextFormat(Strict):
    """Plain text, which is the default. For a choice among texts give `guided_choice`."""

    type: Literal["text"]


class JsonFormat(Strict):
    """JSON mode: the reply is one JSON object."""

    type: Literal["json_object"]

    @property
    def grammar(self) -> dict[str, Any]:
        """The schema that the reply follows."""
        return {"type": "object"}


class JsonSchema(Strict):
    """A named JSON schema. The reply follows it whether it is `strict` or not."""

    name: Name
    description: Text | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """The reply is JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: JsonSchema

    @property
    def grammar(self) -> dict[str, Any]:
        """The schema that the reply follows."""
        return self.json_schema.schema_


class TemplateOptions(Strict):
    """Variables of the chat template, by the name that vLLM and SGLang gave the field."""

    enable_thinking: bool | None = None


class StreamOptions(Strict):
    """What a stream reports besides tokens."""

    include_usage: bool = False
    include_obfuscation: bool = False


_BOUNDS: dict[str, dict[str, float]] = {
    "max_tokens": {"le": 1 << 31},
    "temperature": {"le": 1e6},
    "top_k": {"ge": -1, "le": 1 << 31},
}
"""Where a server is stricter than the engine, or takes what other servers take: their top_k of -1 is off."""

if TYPE_CHECKING:
    _Numbers = Strict
else:
    _Numbers = create_model(
        "_Numbers",
        __base__=Strict,
        **{
            option.name: (
                option.kind | None,
                Field(None, **{**option.bounds, **_BOUNDS.get(option.name, {})}),
            )
            for option in NUMBERS
        },
    )


class SamplingRequest(_Numbers):
    """What both kinds of completion share: the numbers of `SamplingParams`, and what HTTP spells its own way."""

    model: Name | None = None
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 64)
    stop: StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=256, fail_fast=True)] | None = None
    ignore_eos: bool = False
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100.0, le=100.0)]], Field(max_length=1024)] | None = None
    guided_choice: Annotated[list[Text], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None
    guided_token_ids: Annotated[list[TokenIds], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    # What changes nothing is accepted, so that ordinary clients work; anything else is refused.
    frequency_penalty: Annotated[float, Field(ge=0.0, le=0.0)] | None = None
    presence_penalty: Annotated[float, Field(ge=0.0, le=0.0)] | None = None
    user: Name | None = None

    def texts(self) -> list[str]:
        """What has to be tokenised."""
        return list(self.guided_choice or ())

    @model_validator(mode="after")
    def _one_guide(self) -> SamplingRequest:
        if self.guided_choice is not None and self.guided_token_ids is not None:
            raise ValueError("give either guided_choice or guided_token_ids")
        return self

    def params(self, **others: Any) -> SamplingParams:
        """The sampling options.

        Args:
            others: the options that need the model's tokenizer, or that the two kinds of request spell differently.

        Raises:
            ServerError: 400 for a `logit_bias` that names no token ids.
        """
        values = {option.name: getattr(self, option.name) for option in NUMBERS}
        numbers = {name: value for name, value in values.items() if value is not None}
        if "top_k" in numbers:
            numbers["top_k"] = max(numbers["top_k"], 0)
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or ()
        try:
            bias = {int(token): value for token, value in self.logit_bias.items()} if self.logit_bias else None
        except ValueError as error:
            raise ServerError(400, "logit_bias maps token ids, written as whole numbers, to numbers") from error
        return SamplingParams(**{**numbers, "stop": tuple(stop), "logit_bias": bias, **others})


class ChatRequest(SamplingRequest):
    """POST /v1/chat/completions. Without `max_tokens` as many as the context has room for, as OpenAI documents it."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096, fail_fast=True)]
    chat_template_kwargs: TemplateOptions | None = None
    max_completion_tokens: int | None = Field(None, ge=1, le=1 << 31)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: Annotated[TextFormat | JsonFormat | JsonSchemaFormat, Field(discriminator="type")] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    store: Literal[False] | None = None
    metadata: dict[str, str] | None = None

    @model_validator(mode="after")
    def _agree(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if self.schema_to_follow is not None:
            if self.guided_choice is not None or self.guided_token_ids is not None:
                raise ValueError("give either response_format or a guided choice")
            if self.ignore_eos:
                raise ValueError("ignore_eos cannot be used with response_format: the reply ends where its JSON does")
        return self

    @property
    def schema_to_follow(self) -> dict[str, Any] | None:
        """The JSON schema of the reply, if it has to follow one."""
        wanted = self.response_format
        return None if wanted is None or isinstance(wanted, TextFormat) else wanted.grammar

    def texts(self) -> list[str]:
        return [_conversation(self.messages), *super().texts()]

    @property
    def limit(self) -> int | None:
        """Most tokens to generate."""
        return self.max_completion_tokens or getattr(self, "max_tokens")  # noqa: B009, as it comes with `_Numbers`

    @property
    def thinking(self) -> bool | None:
        """The thinking switch; None leaves it to the template."""
        return self.chat_template_kwargs.enable_thinking if self.chat_template_kwargs else None


class CompletionRequest(SamplingRequest):
    """POST /v1/completions: a text, token ids, or several of either. 16 tokens by default, as OpenAI documents it."""

    prompt: Text | TokenIds | Texts | ManyIds
    max_tokens: int | None = Field(16, ge=1, le=1 << 31)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    def texts(self) -> list[str]:
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        return [*(prompt for prompt in prompts if isinstance(prompt, str)), *super().texts()]


class TokenizeRequest(Strict):
    """POST /tokenize: a text, or a conversation with the assistant's prompt at its end."""

    model: Name | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None

    def texts(self) -> list[str]:
        """What has to be tokenised."""
        return [self.prompt if self.prompt is not None else _conversation(self.messages or ())]

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class LoadAdapter(Strict):
    """POST /v1/load_lora_adapter, with vLLM's names. A name that is loaded already gets a new version."""

    lora_name: Annotated[str, Field(max_length=64)]
    lora_path: Annotated[str, Field(max_length=4096)]
    load_inplace: bool = True
    version: int | None = Field(None, ge=0, lt=1 << 62)
    mode: Literal["pin", "keep", "wait", "abort"] = "pin"


class UnloadAdapter(Strict):
    """POST /v1/unload_lora_adapter."""

    lora_name: Annotated[str, Field(max_length=64)]
    lora_int_id: int | None = None


class ServerError(Exception):
    """An answer that is an error, with its HTTP status."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", retry_after: int | None = None):
        super().__init__(message)
        self.status, self.message, self.kind, self.retry_after = status, message, kind, retry_after


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
