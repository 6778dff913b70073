"""The format of requests and errors: OpenAI's, plus token ids, policy versions and allowed answers.

Everything is strict and bounded, so that a request is either carried out exactly or refused. OpenAI fields that would
change an answer but are not implemented are refused, unless their value has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model, model_validator

from inference.server.formats import ResponseFormat, TextFormat
from inference.server.texts import MAX_CHOICES, ManyIds, Name, Seed, StopText, Strict, Text, Texts, TokenIds, only
from inference.server.tools import ChatMessage, Messages, NamedToolChoice, ToolChoice, Tools, check_tools, dialogue
from inference.types import NUMBERS, PublishMode, SamplingParams


def _conversation(messages: Sequence[ChatMessage]) -> str:
    return "".join(part["content"] for part in dialogue(messages))


class TemplateOptions(Strict):
    """Variables of the chat template, by the name that vLLM and SGLang gave the field."""

    enable_thinking: bool | None = None


class StreamOptions(Strict):
    """What a stream reports in addition to tokens."""

    include_usage: bool = False
    include_obfuscation: bool = False


_BOUNDS: dict[str, dict[str, float]] = {
    "max_tokens": {"le": 1 << 31},
    "temperature": {"le": 1e6},
    "top_k": {"ge": -1, "le": 1 << 31},
}
"""Bounds that are stricter than the engine's, or that accept what other servers do: a top_k of -1 means off."""

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
    """Fields shared by both kinds of completion: the numbers of `SamplingParams`, and options with other names over
    HTTP.
    """

    model: Name | None = None
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    seed: Seed | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=256, fail_fast=True)] | None = None
    ignore_eos: bool = False
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100.0, le=100.0)]], Field(max_length=1024)] | None = None
    guided_choice: Annotated[list[Text], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None
    guided_token_ids: Annotated[list[TokenIds], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    # Values that change nothing are accepted, for ordinary clients and for routers, which spell out every default;
    # anything else is refused.
    frequency_penalty: Annotated[float | None, only(0)] = None
    presence_penalty: Annotated[float | None, only(0)] = None
    repetition_penalty: Annotated[float | None, only(1)] = None
    skip_special_tokens: Annotated[bool | None, only(True)] = None
    no_stop_trim: Annotated[bool | None, only(False)] = None
    return_hidden_states: Annotated[bool | None, only(False)] = None
    user: Name | None = None

    def texts(self) -> list[str]:
        """What has to be tokenised."""
        return list(self.guided_choice or ())

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities of the tokens are part of the answer."""
        wanted: bool | int | None = getattr(self, "logprobs", None)
        return wanted if isinstance(wanted, bool) else wanted is not None

    def seeds_of(self, prompts: int) -> list[int | None]:
        """The seed of each prompt; None where one is to be drawn."""
        return [self.seed] * prompts

    @model_validator(mode="after")
    def _one_guide(self) -> SamplingRequest:
        if self.guided_choice is not None and self.guided_token_ids is not None:
            raise ValueError("give either guided_choice or guided_token_ids")
        return self

    def params(self, **others: Any) -> SamplingParams:
        """The sampling options.

        Args:
            others: options that need the model's tokenizer, or that the two kinds of request spell differently.

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
    """POST /v1/chat/completions. Without `max_tokens`, as many tokens as fit in the context, as OpenAI documents."""

    messages: Messages
    chat_template_kwargs: TemplateOptions | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1 << 31)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    store: Annotated[bool | None, only(False)] = None
    add_generation_prompt: Annotated[bool | None, only(True)] = None
    separate_reasoning: Annotated[bool | None, only(True)] = None
    stream_reasoning: Annotated[bool | None, only(True)] = None
    include_reasoning: Annotated[bool | None, only(True)] = None
    continue_final_message: Annotated[bool | None, only(False)] = None
    metadata: dict[str, str] | None = None

    @model_validator(mode="after")
    def _agree(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        check_tools(self.tools or [], self.tool_choice)
        if self.callable and self.schema_to_follow is not None:
            raise ValueError("response_format cannot be used with tools; give tool_choice 'none', or leave one out")
        if self.must_call or self.schema_to_follow is not None:
            if self.guided_choice is not None or self.guided_token_ids is not None:
                raise ValueError("give a guided choice, or response_format or a required tool; not both")
            if self.ignore_eos:
                raise ValueError("ignore_eos cannot be used with response_format or a required tool")
        return self

    @property
    def schema_to_follow(self) -> dict[str, Any] | None:
        """The JSON schema of the reply, if it has to follow one."""
        wanted = self.response_format
        return None if wanted is None or isinstance(wanted, TextFormat) else wanted.grammar

    def texts(self) -> list[str]:
        return [_conversation(self.messages), *super().texts()]

    @property
    def callable(self) -> list[dict[str, Any]]:
        """The tools that the assistant may call, as chat templates take them."""
        return [] if self.tool_choice == "none" else [tool.plain() for tool in self.tools or ()]

    @property
    def must_call(self) -> dict[str, Any]:
        """Names and schemas of the tools, one of which the reply must call; empty if it need not."""
        choice = self.tool_choice
        wanted = None if choice == "required" else choice.function.name if isinstance(choice, NamedToolChoice) else ""
        tools = [tool.function for tool in self.tools or () if wanted in (None, tool.function.name)]
        return {one.name: one.parameters or {"type": "object"} for one in tools}

    @property
    def dialogue(self) -> list[dict[str, str]]:
        """The messages as parts for the renderer, each a role and a text."""
        return dialogue(self.messages)

    @property
    def limit(self) -> int | None:
        """Most tokens to generate."""
        return self.max_completion_tokens or getattr(self, "max_tokens")  # noqa: B009, as it comes with `_Numbers`

    @property
    def thinking(self) -> bool | None:
        """The thinking switch; None leaves it to the template."""
        return self.chat_template_kwargs.enable_thinking if self.chat_template_kwargs else None


class CompletionRequest(SamplingRequest):
    """POST /v1/completions: a text, token ids, or several of either, with one `seed` for all, or `seeds`, one for each.

    `seed` stays one number because routers' schemas say so; they pass on unknown fields such as `seeds`. 16 tokens by
    default, as OpenAI documents.
    """

    prompt: Text | TokenIds | Texts | ManyIds
    seeds: Annotated[list[Seed], Field(max_length=MAX_CHOICES, fail_fast=True)] | None = None
    max_tokens: int | None = Field(default=16, ge=0, le=1 << 31)
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool | None = None
    best_of: Annotated[int | None, only(1)] = None
    suffix: Annotated[str | None, only("")] = None

    @model_validator(mode="after")
    def _echo_whole(self) -> CompletionRequest:
        if self.echo and self.stream:
            raise ValueError("echo cannot be used with stream")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens of 0 needs echo to be true; else give at least 1")
        return self

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """The prompts, one or several."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return self.prompt if several else [self.prompt]  # type: ignore[return-value, list-item]

    @model_validator(mode="after")
    def _one_seed_each(self) -> CompletionRequest:
        prompts = len(self.prompts)
        if self.seeds is not None and self.seed is not None:
            raise ValueError("give either seed or seeds")
        if self.seeds is not None and len(self.seeds) != prompts:
            raise ValueError(f"{len(self.seeds)} seeds for {prompts} prompts; give one for each, or one seed for all")
        return self

    def seeds_of(self, prompts: int) -> list[int | None]:
        return super().seeds_of(prompts) if self.seeds is None else [*self.seeds]

    def texts(self) -> list[str]:
        return [*(prompt for prompt in self.prompts if isinstance(prompt, str)), *super().texts()]


class TokenizeRequest(Strict):
    """POST /tokenize: a text, or a conversation that ends with the assistant's prompt."""

    model: Name | None = None
    prompt: Text | None = None
    messages: Messages | None = None

    def texts(self) -> list[str]:
        """What has to be tokenised."""
        return [self.prompt if self.prompt is not None else _conversation(self.messages or ())]

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class LoadAdapter(Strict):
    """POST /v1/load_lora_adapter, with vLLM's names. A name that is already loaded gets a new version."""

    lora_name: Annotated[str, Field(max_length=64)]
    lora_path: Annotated[str, Field(max_length=4096)]
    load_inplace: bool = True
    version: int | None = Field(default=None, ge=0, lt=1 << 62)
    mode: PublishMode = "pin"


class UnloadAdapter(Strict):
    """POST /v1/unload_lora_adapter."""

    lora_name: Annotated[str, Field(max_length=64)]
    lora_int_id: int | None = None


class ServerError(Exception):
    """An error answer with its HTTP status."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", retry_after: int | None = None):
        super().__init__(message)
        self.status, self.message, self.kind, self.retry_after = status, message, kind, retry_after


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
