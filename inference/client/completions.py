"""`/v1/completions` with token ids in and out and several prompts per call, as in vLLM and `legos serve`.

Pure functions. An answer is accepted only if it is complete, for exactly these prompts, and by this model: a mistake
here would be trained on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from inference.client.errors import BadAnswer, RequestRefused
from inference.types import Completion, FinishReason, Request, SamplingParams

Json = dict[str, Any]
MOST_PROMPTS = 128
"""Per call; `legos serve` accepts no more."""
CALL_TOKENS = 2048
"""Tokens that one call may generate: the answer arrives when its longest completion ends."""
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


def group_key(params: SamplingParams) -> Hashable:
    """Equal for requests that can share a call: everything but the seed agrees.

    Raises:
        RequestRefused: 400 for an option that the protocol lacks.
    """
    p = params
    if p.allowed is not None or p.logit_bias or p.top_logprobs or p.max_tokens is None:
        raise RequestRefused(
            400, "servers take neither `allowed`, `logit_bias` nor `top_logprobs` from here, and `max_tokens` is needed"
        )
    return (p.max_tokens, p.temperature, p.top_p, p.top_k, p.min_p, p.thinking_token_budget, p.stop_ids, p.stop)


def most_prompts(params: SamplingParams) -> int:
    """How many prompts fit in one call."""
    return min(MOST_PROMPTS, max(1, CALL_TOKENS // (params.max_tokens or CALL_TOKENS)))


def body(model: str, requests: Sequence[Request], *, seeds: bool) -> Json:
    """The body of a call.

    Args:
        model: the adapter's name, or the base model's.
        requests: of one `group_key`.
        seeds: send a seed for each prompt. vLLM takes only one seed for all of them, which would give equal prompts
            equal answers, so none is sent to it.
    """
    params = requests[0].sampling
    out: Json = {
        "model": model,
        "prompt": [list(request.prompt) for request in requests],
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "logprobs": 0,
        "return_token_ids": True,
    }
    neutral = (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0), ("thinking_token_budget", -1))
    out |= {name: value for name, off in neutral if (value := getattr(params, name)) != off}
    if params.stop_ids is not None:
        out |= {"ignore_eos": True, "stop_token_ids": sorted(params.stop_ids)}
    if params.stop:
        out["stop"] = list(params.stop)
    if seeds and params.seed is not None:
        out["seeds"] = [request.sampling.seed for request in requests]
    return out


def read(answer: Any, model: str, requests: Sequence[Request], version: int, digest: str | None) -> list[Completion]:
    """The completions in an answer, in the order of the requests.

    Args:
        answer: parsed JSON.
        model: that was asked.
        requests: that were sent.
        version: of the model's weights.
        digest: of the adapter's weights; a server that reports a digest must report this one.

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
        tokens, logprobs, reason = _tokens(choice, request)
        if choice.get("adapter_digest", digest) != digest:
            there = choice["adapter_digest"]
            raise BadAnswer(f"{model!r} has other weights there: {there!r:.20} instead of {digest!r:.20}")
        out.append(
            Completion(
                request_id=index,
                tokens=tokens,
                logprobs=logprobs,
                sampled_logprobs=logprobs if _plain(request.sampling) else [math.nan] * len(tokens),
                finish_reason=reason,
                adapter=request.adapter,
                policy_version=version,
                prompt_tokens=len(request.prompt),
                cached_tokens=0 if index else cached,
                adapter_digest=digest,
            )
        )
    return out


def _tokens(choice: Json, request: Request) -> tuple[list[int], list[float], FinishReason]:
    tokens, found = choice.get("token_ids"), choice.get("logprobs")
    logprobs = found.get("token_logprobs") if isinstance(found, dict) else None
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        raise BadAnswer(f"a completion has no token_ids, got {tokens!r:.80}")
    if not isinstance(logprobs, list) or len(logprobs) != len(tokens):
        raise BadAnswer(f"{len(tokens)} tokens do not have as many log-probabilities: {logprobs!r:.80}")
    if not all(isinstance(p, int | float) and p <= 1e-3 and math.isfinite(p) for p in logprobs):
        raise BadAnswer(f"token_logprobs holds invalid log-probabilities: {logprobs!r:.80}")
    params, reason = request.sampling, choice.get("finish_reason")
    if reason not in _REASONS:
        raise BadAnswer(f"finish_reason is {reason!r:.80}; {' and '.join(_REASONS)} are known here")
    most = params.max_tokens or 0
    stopped = params.stop_ids is None or tokens[-1] in params.stop_ids or bool(params.stop)
    if len(tokens) > most or (reason == "stop" and not stopped):
        raise BadAnswer(f"{len(tokens)} tokens (at most {most} were wanted), ended by {reason!r} at {tokens[-1]}")
    prompt = choice.get("prompt_token_ids")
    if prompt is not None and prompt != list(request.prompt):
        raise BadAnswer(f"the answer is to another prompt: {prompt!r:.60} instead of {request.prompt!r:.60}")
    return tokens, logprobs, _REASONS[reason]


def _plain(params: SamplingParams) -> bool:
    """Whether tokens are drawn from the raw distribution, the one whose log-probabilities servers report."""
    return (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)


def _cached(usage: Any) -> int:
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0
