"""Requests, sampling options, completions and errors: plain data. Importing this file loads no MLX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Protocol

PublishMode = Literal["pin", "keep", "wait", "abort"]
Dequantize = Literal["auto", "on", "off"]
"""Whether quantised weights are turned into plain ones when a model is loaded; see `inference.unpacking`."""
Lookahead = Literal["auto", "on", "off"]
"""Whether a step is submitted before the previous step's tokens are known; "auto": on Metal and CUDA."""
Threads = int | Literal["auto"]
"""Threads of the matrix library on a CPU; see `inference.forward.threads.use_threads`."""
MAX_ROWS = 64
MAX_LORA_RANK = 64
MAX_KV_BYTES = 4 << 30
PREFIX_CACHE_BYTES = 256 << 20
"""Defaults of the engine, of the server and of `legos serve`; `Engine` says what they are."""
FinishReason = Literal["stop", "length", "aborted", "error"]
BUNDLED = ("tiny", "small")
"""The models that ship with Legos, under `inference/models`."""
ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names that an adapter may have over HTTP, where they become part of a path."""

OBSERVATION = "{observation}"
"""Placeholder for the message in a text that wraps every user message."""


class InferenceError(Exception):
    """Base class of all errors that this package raises deliberately."""


class ModelNotFound(InferenceError, FileNotFoundError):
    """There is no model under the name or path given to `load`."""


class UnsafeModel(InferenceError, ValueError):
    """The model directory requires running its own Python code."""


class UnsupportedModel(InferenceError, NotImplementedError):
    """The model has a feature that the engine cannot serve."""


class AdapterError(InferenceError, ValueError):
    """Adapter weights that do not fit the model, are not finite, or cannot be read."""


class VersionConflict(InferenceError, ValueError):
    """An adapter version that is older than the last one of its name, or was published with other weights."""


class ContextOverflow(InferenceError, ValueError):
    """A prompt that leaves no room for a single new token."""


class UnknownAdapter(InferenceError, ValueError):
    """An adapter name that is not published."""


class UnknownRequest(InferenceError, KeyError):
    """A request id that is neither waiting nor running."""


class Guide(Protocol):
    """Decides token by token how a completion may continue, such as a compiled grammar; hashable."""

    def ids_after(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens that may follow, sorted, at least one. Must not raise: other requests run in the same batch."""


@dataclass(frozen=True, kw_only=True)
class DrawParams:
    """How a token is drawn from the model's distribution: the one list of these numbers, with defaults and ranges.

    The clients, the server's request models, and the settings and flags of training and evaluation read it, so a new
    number needs one line here and its text below, plus its use in `engine/sampling.py`.

    Attributes:
        temperature: divides the logits; 0 (or below 1e-4) takes the most likely token.
        top_p: keep the most likely tokens that together have this probability; 1.0 keeps all.
        top_k: keep that many of the most likely tokens; 0 keeps all.
        min_p: drop tokens less likely than this fraction of the most likely one; 0.0 drops none.
    """

    temperature: float = field(default=1.0, metadata={"ge": 0.0, "vllm": True})
    top_p: float = field(default=1.0, metadata={"gt": 0.0, "le": 1.0, "vllm": True})
    top_k: int = field(default=0, metadata={"ge": 0, "vllm": True})
    min_p: float = field(default=0.0, metadata={"ge": 0.0, "le": 1.0, "vllm": True})

    @staticmethod
    def of(holder: Any) -> DrawParams:
        """Those that an object has as attributes; the others have their defaults."""
        given: dict[str, Any] = {f.name: getattr(holder, f.name, f.default) for f in fields(DrawParams)}
        return DrawParams(**given)

    @property
    def unusual(self) -> dict[str, float]:
        """Those with which tokens are not drawn from the model's own distribution."""
        return {f.name: value for f in fields(DrawParams) if (value := getattr(self, f.name)) != f.default}


UNCHANGED = DrawParams()
"""Tokens are drawn from the model's own distribution."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams(DrawParams):
    """How a completion is drawn and when it ends: `DrawParams`, and the other sampling options.

    `Request`, the clients and the server's request models read it, so a new number needs one line here, too.

    Attributes:
        max_tokens: most tokens to generate; None for as many as the context has room for, which always bounds it.
        speculate: most tokens, up to 8, that may be guessed ahead in a step; 0 guesses none. The tokens stay the same:
            a guess counts only if it is what would have been drawn.
        seed: with the index of the generated token, determines every random draw, whatever else is in the batch.
            None draws a new seed for each request.
        stop_ids: tokens that end the completion (they are part of it); None means the tokenizer's end tokens.
        stop: texts that end the completion as soon as its own text contains one (needs the engine's tokenizer).
        logit_bias: added to the logits of these tokens before drawing; reported logprobs stay those of the model.
        allowed: token sequences the completion must be one of, such as the legal moves of a game; None allows anything.
            No sequence may be a prefix of another; end each with a stop token.
        guide: constrains the completion token by token; None leaves it free. Not together with `allowed`.
        thinking_token_budget: most tokens between `<think>` and `</think>`; then the thought is closed and the answer
            follows. -1 sets no limit. Needs a model with these tokens.
        top_logprobs: how many alternatives to report at each position.
    """

    max_tokens: int | None = field(default=256, metadata={"ge": 1, "vllm": True})
    thinking_token_budget: int = field(default=-1, metadata={"ge": -1, "vllm": True})
    speculate: int = field(default=0, metadata={"ge": 0})
    seed: int | None = None
    stop_ids: frozenset[int] | None = None
    stop: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] | None = None
    allowed: Sequence[Sequence[int]] | None = None
    guide: Guide | None = None
    top_logprobs: int = 0

    def seeded(self, seed: int | None) -> SamplingParams:
        """A copy with another seed, in a fifth of the time that `dataclasses.replace` takes."""
        other = object.__new__(type(self))
        own = self.__dict__
        other.__dict__.update(own, seed=seed, _unseeded=own.get("_unseeded", self))
        return other


class NumberOption(NamedTuple):
    """A sampling option that is one number with the same name everywhere; its bounds have pydantic's names.

    `vllm`: whether vLLM knows it, too.
    """

    name: str
    kind: type
    bounds: Mapping[str, float]
    vllm: bool


NUMBERS = tuple(
    NumberOption(f.name, type(f.default), {k: v for k, v in f.metadata.items() if k != "vllm"}, "vllm" in f.metadata)
    for f in fields(SamplingParams)
    if f.metadata
)


@dataclass(slots=True)
class Request:
    """One completion to sample.

    Attributes:
        prompt: token ids, at least one.
        sampling: how the completion is drawn and when it ends.
        adapter: a published name, or None for the base model.
        stream: report tokens as they come, through `Engine.deltas`.
        park: keep the keys and values of the whole conversation when it ends, for the next turn's prompt.
        session: names the conversation, for choosing among servers; the engine ignores it.
    """

    prompt: Sequence[int]
    sampling: SamplingParams = SamplingParams()
    adapter: str | None = None
    stream: bool = False
    park: bool = False
    session: str | None = None


class Delta(NamedTuple):
    """New tokens of a request that streams; `version` is the policy version that sampled the last of them."""

    request_id: int
    tokens: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]] | None
    version: int


@dataclass(slots=True)
class Completion:
    """The result of one request. Its lists may be those of other results that ended alike: change copies only.

    Attributes:
        tokens: generated ids, the stop token included when one was sampled.
        logprobs: natural log of each token's probability under the raw distribution (temperature 1, no filter).
        sampled_logprobs: the same under the distribution that was sampled from (tempered, filtered, biased and
            restricted; 0 when greedy).
        policy_version: the version given to `publish`, 0 for the base model. If a publication with mode `keep` changed
            it midway, this is the last version, and `token_versions` has each token's.
        cached_tokens: prompt tokens whose keys and values were not computed for this request.
        top_logprobs: per position the most likely (id, raw logprob) pairs, best first; None unless asked for.
        adapter_digest: digest of the weights of `policy_version`; None for the base model.
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
    adapter_digest: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """A published adapter: `running` counts the unfinished requests pinned to this version."""

    name: str
    version: int
    digest: str
    rank: int
    running: int
