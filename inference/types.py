"""The words the engine speaks: requests, completions, errors. Host data only; importing this file loads no MLX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

PublishMode = Literal["pin", "keep", "wait", "abort"]
FinishReason = Literal["stop", "length", "aborted", "error"]


class InferenceError(Exception):
    """Base of every error this package raises on purpose."""


class ModelNotFound(InferenceError, FileNotFoundError):
    """The name or path given to `load` holds no model."""


class UnsafeModel(InferenceError, ValueError):
    """The model directory asks for its own Python code to be run."""


class UnsupportedModel(InferenceError, NotImplementedError):
    """Something about the model that the engine cannot serve."""


class AdapterError(InferenceError, ValueError):
    """Adapter weights that do not fit the model, are not finite, or cannot be read."""


class ContextOverflow(InferenceError, ValueError):
    """A prompt that leaves no room for a single new token."""


class UnknownAdapter(InferenceError, ValueError):
    """An adapter name that is not published."""


class UnknownRequest(InferenceError, KeyError):
    """A request id that is neither waiting nor running."""


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample.

    prompt: token ids, at least one.
    max_tokens: most tokens to generate; the context limit may end the completion earlier.
    temperature: 0 (or below 1e-4) is greedy.
    top_p, top_k, min_p: filters on the tempered distribution; 1.0, 0 and 0.0 switch them off.
    seed: with the index of the generated token it fixes every random draw, whatever else runs beside it.
    stop_ids: tokens that end the completion (they are part of it); None means the tokenizer's end tokens.
    adapter: a published name, or None for the base model.
    top_logprobs: how many alternatives to report at each position.
    stop: texts that end the completion as soon as its own text contains one (needs the engine's tokenizer).
    logit_bias: added to the logits of these tokens before drawing; reported logprobs stay those of the model.
    allowed: token sequences the completion must be one of, such as the legal moves of a game. None means anything.
        No sequence may be the beginning of another; end each with a stop token.
    stream: report tokens as they come, by `Engine.deltas`.
    park: keep the keys and values of the whole conversation when it ends, for the next turn's prompt.
    """

    prompt: Sequence[int]
    max_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop_ids: frozenset[int] | None = None
    adapter: str | None = None
    top_logprobs: int = 0
    stop: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] | None = None
    allowed: Sequence[Sequence[int]] | None = None
    stream: bool = False
    park: bool = False


class Delta(NamedTuple):
    """New tokens of a request that streams; `version` is the policy version that sampled the last of them."""

    request_id: int
    tokens: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]] | None
    version: int


@dataclass(frozen=True, slots=True)
class Completion:
    """What became of one request.

    tokens: generated ids, the stop token included when one was sampled.
    logprobs: natural log of each token's probability under the raw distribution (temperature 1, no filter).
    sampled_logprobs: the same under the distribution that was sampled from (tempered, filtered, biased and restricted;
        0 when greedy).
    policy_version: the version given to `publish`, 0 for the base model; the last one where a publication with mode
        `keep` changed it on the way, and `token_versions` then has each token's.
    cached_tokens: prompt tokens whose keys and values were not computed for this request.
    top_logprobs: per position the most likely (id, raw logprob) pairs, best first; None unless asked for.
    """

    request_id: int
    tokens: list[int]
    logprobs: list[float]
    sampled_logprobs: list[float]
    finish_reason: FinishReason
    adapter: str | None
    policy_version: int
    prompt_tokens: int
    cached_tokens: int
    error: str | None = None
    top_logprobs: list[list[tuple[int, float]]] | None = None
    token_versions: list[int] | None = None


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """A published adapter: `running` counts the unfinished requests pinned to this version."""

    name: str
    version: int
    digest: str
    rank: int
    running: int
