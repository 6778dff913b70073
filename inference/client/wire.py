"""Converts requests to the server's JSON, and its answers to the engine's types. Pure functions.

Every field of a `Request` is sent or refused. `park` is the exception: a server keeps every conversation while it has
room, without changing any result.
"""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from inference.client.errors import BadAnswer, RequestRefused
from inference.client.interface import ChatReply, Message, ServerInfo, Usage
from inference.types import NUMBERS, AdapterInfo, Completion, FinishReason, Request, SamplingParams

Json = dict[str, Any]
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "aborted"}


def completion_body(request: Request) -> Json:
    """The body of POST /v1/completions. RequestRefused 400 for values that JSON cannot represent."""
    if request.stream:
        raise RequestRefused(400, "stream has no meaning for a whole completion; use the engine or the HTTP API")
    params = request.sampling
    body = _sampling(params, request.adapter) | {"prompt": _ids("prompt", request.prompt)}
    return body | ({"logprobs": body.pop("top_logprobs")} if params.top_logprobs else {})


def chat_body(
    messages: Sequence[Message], params: SamplingParams, adapter: str | None, choices: Sequence[str] | None
) -> Json:
    """The body of POST /v1/chat/completions. RequestRefused 400 as in `completion_body`."""
    body = _sampling(params, adapter) | {"messages": plain_messages(messages)}
    if choices is not None:
        body["guided_choice"] = list(choices)
    return body | ({"logprobs": True} if params.top_logprobs else {})


def plain_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The messages as new dicts. RequestRefused 400 unless each has exactly a role and a content."""
    plain = [dict(message) for message in messages]
    for message in plain:
        good = message.keys() == {"role", "content"} and isinstance(message["content"], str)
        if not good or message["role"] not in ("system", "user", "assistant"):
            raise RequestRefused(
                400, f"a message has a role (system, user or assistant) and a text as content, got {message!r:.200}"
            )
    return plain


def _sampling(params: SamplingParams, adapter: str | None) -> Json:
    """Fields shared by both kinds of request. Draws a seed if none is given, so that a retry reuses it."""
    body: Json = {
        "return_token_ids": True,
        "seed": secrets.randbits(63) if params.seed is None else _int("seed", params.seed),
    }
    for option in NUMBERS:
        value = getattr(params, option.name)
        convert = _int if option.kind is int else _float
        body[option.name] = None if value is None and option.name == "max_tokens" else convert(option.name, value)
    if params.stop:
        body["stop"] = list(params.stop)
    if params.stop_ids is not None:
        body |= {"ignore_eos": True, "stop_token_ids": sorted(_ids("stop_ids", params.stop_ids))}
    if adapter is not None:
        body["model"] = adapter
    if params.logit_bias:
        body["logit_bias"] = {
            str(_int("logit_bias", token)): _float("logit_bias", value)
            for token, value in dict(params.logit_bias).items()
        }
    if params.guide is not None:
        raise RequestRefused(400, f"a guide cannot be sent to a server, got {params.guide!r:.100}; use allowed")
    if params.allowed is not None:
        body["guided_token_ids"] = [_ids("allowed", sequence) for sequence in params.allowed]
    if params.top_logprobs:
        body["top_logprobs"] = _int("top_logprobs", params.top_logprobs)
    return body


def _int(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError("a truth value")
        return operator.index(value)
    except TypeError:
        raise RequestRefused(400, f"{name} must be an integer, got {value!r:.100}") from None


def _ids(name: str, values: Iterable[Any]) -> list[int]:
    try:
        return [_int(name, value) for value in values]
    except TypeError:
        raise RequestRefused(400, f"{name} must be a sequence of token ids, got {type(values).__name__}") from None


def _float(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise RequestRefused(400, f"{name} must be a finite number, got {value!r:.100}")
    return number


def read_completion(answer: Any, request: Request, number: int) -> Completion:
    """The completion in an answer of /v1/completions; `number` becomes its id. BadAnswer when it is malformed."""
    choice, usage = _parts(answer)
    return Completion(
        request_id=number,
        finish_reason=_reason(choice),
        prompt_tokens=_field(usage, "prompt_tokens", int),
        cached_tokens=_cached(usage),
        **_tokens(choice, request.adapter, bool(request.sampling.top_logprobs)),
    )


def read_chat(answer: Any, params: SamplingParams, adapter: str | None) -> ChatReply:
    """The reply in an answer of /v1/chat/completions. BadAnswer when it is malformed."""
    choice, usage = _parts(answer)
    facts = _tokens(choice, adapter, bool(params.top_logprobs))
    tokens = facts.pop("tokens")
    return ChatReply(
        text=_field(_field(choice, "message", dict), "content", str),
        token_ids=tokens,
        finish_reason=_reason(choice),
        usage=Usage(_field(usage, "prompt_tokens", int), _cached(usage), len(tokens)),
        prompt_ids=_list(choice, "prompt_token_ids", int),
        **facts,
    )


def read_info(answer: Any) -> ServerInfo:
    """The answer of /v1/legos/info. BadAnswer when it is malformed."""
    adapters = {
        name: AdapterInfo(
            name,
            _field(one, "version", int),
            _field(one, "digest", str),
            _field(one, "rank", int),
            _field(one, "running", int),
        )
        for name, one in _field(answer, "adapters", dict).items()
    }
    names = ("model", "base_digest", "tokenizer_digest", "template_digest")
    texts = {name: _field(answer, name, str) for name in names}
    numbers = {name: _field(answer, name, int) for name in ("protocol", "vocab_size", "context")}
    limits = ("max_adapters", "max_queue")
    most = {name: _field(answer, name, int) for name in limits if answer.get(name) is not None}
    return ServerInfo(**texts, **numbers, adapters=adapters, **most)


def error_text(answer: Any) -> str:
    """The message of an error answer, in OpenAI's form or FastAPI's; "" if there is none."""
    error = answer.get("error", answer.get("detail")) if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return text[:1000] if isinstance(text, str) else ""


def _tokens(choice: Json, adapter: str | None, tops: bool) -> Json:
    """The fields shared by `Completion` and `ChatReply`."""
    tokens = _list(choice, "token_ids", int)
    logprobs = [float(p) for p in _list(choice, "token_logprobs", float)]
    sampled = [float(p) for p in _list(choice, "token_sampled_logprobs", float)]
    versions = _list(choice, "token_versions", int) if choice.get("token_versions") is not None else None
    top = [_pairs(one) for one in _list(choice, "token_top_logprobs", list)] if tops else None
    if any(len(one) != len(tokens) for one in (logprobs, sampled, versions, top) if one is not None):
        raise BadAnswer(f"the answer has {len(tokens)} tokens, but not as many log-probabilities or versions")
    if choice.get("adapter") != adapter:
        raise BadAnswer(f"asked for the adapter {adapter!r}, answered by {choice.get('adapter')!r:.80}")
    return {
        "tokens": tokens,
        "logprobs": logprobs,
        "sampled_logprobs": sampled,
        "adapter": adapter,
        "policy_version": _field(choice, "policy_version", int),
        "adapter_digest": None if adapter is None else _field(choice, "adapter_digest", str),
        "top_logprobs": top,
        "token_versions": versions,
    }


def _pairs(values: Any) -> list[tuple[int, float]]:
    pairs = [tuple(pair) for pair in values if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(values) or not all(_is(i, int) and _is(p, float) for i, p in pairs):
        raise BadAnswer(f"token_top_logprobs holds no pairs of token id and log-probability: {values!r:.100}")
    return [(i, float(p)) for i, p in pairs]


def _parts(answer: Any) -> tuple[Json, Json]:
    choices = _list(answer, "choices", dict)
    if len(choices) != 1:
        raise BadAnswer(f"asked for one completion, got {len(choices)}")
    return choices[0], _field(answer, "usage", dict)


def _reason(choice: Json) -> FinishReason:
    reason = _field(choice, "finish_reason", str)
    if reason not in _REASONS:
        raise BadAnswer(f"finish_reason is {reason!r:.80}; expected one of {', '.join(_REASONS)}")
    return _REASONS[reason]


def _cached(usage: Mapping[str, Any]) -> int:
    return cast(int, _field(_field(usage, "prompt_tokens_details", dict), "cached_tokens", int))


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
    return isinstance(value, kind) and not isinstance(value, bool)


def _field(holder: Any, name: str, kind: type) -> Any:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not _is(value, kind):
        raise BadAnswer(f"the answer's {name!r} should be of type {kind.__name__}, got {value!r:.100}")
    return value


def _list(holder: Any, name: str, kind: type) -> list[Any]:
    values: list[Any] = _field(holder, name, list)
    if not all(_is(value, kind) for value in values):
        raise BadAnswer(f"the answer's {name!r} should hold values of type {kind.__name__}, got {values!r:.100}")
    return values
