"""`/v1/completions` with token ids in and out and several prompts per call, as in vLLM and `legos serve`.

Pure functions. An answer is accepted only if it is complete, for exactly these prompts, and by this model: a mistake
here would be trained on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from inference.client.errors import BadAnswer, RequestRefused
from inference.types import NUMBERS, Completion, FinishReason, Request, SamplingParams

Json = dict[str, Any]
MOST_PROMPTS = 128
"""Maximum prompts per call; `legos serve` accepts no more."""
CALL_PROMPT_TOKENS = 100_000
"""Maximum prompt tokens per call, unless one prompt is longer; `legos serve` accepts bodies of 262,144 values."""
CALL_TOKENS = 2048
"""Tokens that one call may generate: the answer arrives when its longest completion ends."""
VLLM_NUMBERS = tuple(option.name for option in NUMBERS if option.vllm)
"""The numbers of `SamplingParams` that vLLM reads; it silently ignores others."""
VLLM_EXTRA = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Sent to vLLM with every call, since vLLM takes missing values from the model's `generation_config.json`."""
_NO_EFFECT = ("max_tokens", "speculate")
"""The numbers that do not change the probability of a token."""
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
_SENT = (*(option.name for option in NUMBERS), "stop_ids", "stop")
_values = attrgetter(*_SENT)
_DEFAULTS = {f.name: f.default for f in fields(SamplingParams)}
_UNSENT = [name for name in _DEFAULTS if name not in (*_SENT, "seed")]


def group_key(params: SamplingParams) -> Hashable:
    """Equal for requests that can share a call: everything but the seed agrees.

    Raises:
        RequestRefused: 400 for an option that the protocol lacks.
    """
    given = [name for name in _UNSENT if getattr(params, name) != _DEFAULTS[name]]
    if given or params.max_tokens is None:
        wrong = f"cannot be asked for {' or '.join(given)}" if given else "need max_tokens, got None"
        raise RequestRefused(400, f"calls with several prompts {wrong}; they accept only {', '.join(_SENT)} and seed")
    key = (*_values(params), params.seed is None)
    try:
        hash(key)
    except TypeError:
        got = f"got {params.stop!r:.200} and {params.stop_ids!r:.200}"
        raise RequestRefused(400, f"stop must be a tuple of texts and stop_ids a frozenset of ids, {got}") from None
    return key


def calls(requests: Sequence[Request], most: int = MOST_PROMPTS) -> list[int]:
    """How to divide requests of one `group_key`, in order, into calls: the number of prompts in each."""
    params = requests[0].sampling
    most = min(most, MOST_PROMPTS, max(1, CALL_TOKENS // (params.max_tokens or CALL_TOKENS)))
    sizes, tokens = [0], 0
    for request in requests:
        length = len(request.prompt)
        if sizes[-1] == most or (sizes[-1] and tokens + length > CALL_PROMPT_TOKENS):
            sizes.append(0)
            tokens = 0
        sizes[-1] += 1
        tokens += length
    return sizes


def body(model: str, requests: Sequence[Request], *, vllm: bool) -> Json:
    """The body of a call.

    Args:
        model: the adapter's name, or the base model's.
        requests: of one `group_key`.
        vllm: the server is vLLM, not `legos serve`. It takes one seed for all prompts, which would give equal prompts
            equal answers, so none is sent to it.

    Raises:
        RequestRefused: 400 for an option that vLLM lacks.
    """
    params = requests[0].sampling
    numbers = {option.name: getattr(params, option.name) for option in NUMBERS}
    if vllm:
        lacking = [name for name in _changing(params) if name not in VLLM_NUMBERS]
        if lacking:
            raise RequestRefused(400, f"vLLM has no {' or '.join(lacking)}; it takes {', '.join(VLLM_NUMBERS)}")
        numbers = {name: numbers[name] for name in VLLM_NUMBERS} | VLLM_EXTRA
    out: Json = {
        "model": model,
        "prompt": [_plain(request.prompt) for request in requests],
        "logprobs": 0,
        "return_token_ids": True,
        **numbers,
    }
    if params.stop_ids is not None:
        out |= {"ignore_eos": True, "stop_token_ids": sorted(params.stop_ids)}
    if params.stop:
        out["stop"] = list(params.stop)
    if not vllm and params.seed is not None:
        out["seeds"] = [request.sampling.seed for request in requests]
    return out


def _plain(prompt: Any) -> list[int]:
    return prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)


def read(
    answer: Any, model: str, requests: Sequence[Request], version: int, digest: str | None, vocab: int | None = None
) -> list[Completion]:
    """The completions in an answer, in the order of the requests.

    Args:
        answer: parsed JSON.
        model: the name in the requests.
        requests: those that were sent.
        version: version of the model's weights.
        digest: of the adapter's weights; a server that reports a digest must report this one.
        vocab: the tokens that the model knows; None: not known here.

    Raises:
        BadAnswer: it is not a valid answer to these requests.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != len(requests):
        found = len(choices) if isinstance(choices, list) else 0
        raise BadAnswer(f"asked for {len(requests)} completions, got {found}: {str(answer)[:100]}")
    if answer.get("model") != model:
        raise BadAnswer(f"asked the model {model!r}, answered by {answer.get('model')!r:.80}")
    if len(choices) > 1:
        try:
            choices = sorted(choices, key=lambda choice: choice["index"])
        except (TypeError, KeyError):
            raise BadAnswer("the choices have no index") from None
    cached = _cached(answer.get("usage"))
    out = []
    for index, (choice, request) in enumerate(zip(choices, requests)):
        if not isinstance(choice, dict) or choice.get("index") != index:
            raise BadAnswer(f"completion {index} of {len(requests)} is not in the answer")
        tokens, logprobs, reason = _tokens(choice, request, vocab)
        if choice.get("adapter_digest", digest) != digest:
            there = choice["adapter_digest"]
            raise BadAnswer(f"the server has different weights for {model!r}: {there!r:.20} instead of {digest!r:.20}")
        out.append(
            Completion(
                request_id=index,
                tokens=tokens,
                logprobs=logprobs,
                sampled_logprobs=[math.nan] * len(tokens) if _changing(request.sampling) else logprobs,
                finish_reason=reason,
                adapter=request.adapter,
                policy_version=version,
                prompt_tokens=len(request.prompt),
                cached_tokens=0 if index else cached,
                adapter_digest=digest,
            )
        )
    return out


def _tokens(choice: Json, request: Request, vocab: int | None) -> tuple[list[int], list[float], FinishReason]:
    tokens, found = choice.get("token_ids"), choice.get("logprobs")
    logprobs = found.get("token_logprobs") if isinstance(found, dict) else None
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        raise BadAnswer(f"a completion has no token_ids, got {tokens!r:.80}")
    if vocab is not None and max(tokens) >= vocab:
        raise BadAnswer(f"token {max(tokens)} is in an answer; the model has {vocab} tokens, from 0")
    if not isinstance(logprobs, list) or len(logprobs) != len(tokens):
        raise BadAnswer(f"{len(tokens)} tokens need as many log-probabilities; got {logprobs!r:.80}")
    if not all(isinstance(p, int | float) and -math.inf < p <= 1e-3 for p in logprobs):
        raise BadAnswer(f"token_logprobs holds invalid log-probabilities: {logprobs!r:.80}")
    params, reason = request.sampling, choice.get("finish_reason")
    if reason not in _REASONS:
        raise BadAnswer(f"finish_reason is {reason!r:.80}; expected {' or '.join(_REASONS)}")
    most = params.max_tokens or 0
    stopped = params.stop_ids is None or tokens[-1] in params.stop_ids or bool(params.stop)
    if len(tokens) > most or (reason == "stop" and not stopped):
        raise BadAnswer(f"{len(tokens)} tokens (at most {most} were requested), ended by {reason!r} at {tokens[-1]}")
    prompt = choice.get("prompt_token_ids")
    if prompt is not None and prompt != _plain(request.prompt):
        raise BadAnswer(f"the answer is to another prompt: {prompt!r:.60} instead of {request.prompt!r:.60}")
    return tokens, logprobs, _REASONS[reason]


def _changing(params: SamplingParams) -> list[str]:
    """The numbers that make sampling differ from the raw distribution, whose log-probabilities servers report.

    A limit on thoughts is among them: the tokens that close a thought are not drawn at all.
    """
    names = (option.name for option in NUMBERS if option.name not in _NO_EFFECT)
    return [name for name in names if getattr(params, name) != _DEFAULTS[name]]


def _cached(usage: Any) -> int:
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0
