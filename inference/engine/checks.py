"""Checks of a request before it enters the engine; errors name the given and the accepted values."""

from __future__ import annotations

import itertools
import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from inference.bounded_cache import BoundedCache
from inference.engine.sampling import CheckedParams
from inference.thoughts import NO_LIMIT, ThoughtLimit, ThoughtMarkers
from inference.types import NUMBERS, ContextOverflow, SamplingParams

MAX_STOPS = 16
MAX_STOP_CHARS = 200
MAX_BIASED = 1024
MAX_SEEDED = 256
_PLAIN = operator.attrgetter("stop_ids", "stop", "top_logprobs", *(option.name for option in NUMBERS))


class Checks:
    """The checks of one engine; parameters checked before are looked up."""

    def __init__(
        self,
        vocab: int,
        context: int,
        eos_ids: frozenset[int],
        has_tokenizer: bool,
        thoughts: ThoughtMarkers | None = None,
    ) -> None:
        self.vocab, self.context, self._thoughts = vocab, context, thoughts
        self._eos_ids, self._has_tokenizer = eos_ids, has_tokenizer
        self._checked: BoundedCache[CheckedParams] = BoundedCache(4096, 8 << 20)
        self._seeded: dict[int, tuple[SamplingParams, CheckedParams]] = {}
        """By the id of parameters of which seeded copies were checked: these parameters, and the result."""
        self._last_allowed: tuple[Any, tuple[tuple[int, ...], ...]] = ((), ())

    def prompt(self, prompt: Sequence[int], what: str = "prompt") -> tuple[int, ...]:
        """The ids as a tuple. ValueError when they are not token ids, ContextOverflow when they leave no room."""
        if isinstance(prompt, np.ndarray):
            prompt = prompt.tolist()
        try:
            ids = tuple(prompt)
            array = np.asarray(ids)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a {what} is a sequence of token ids, got {type(prompt).__name__}: {error}") from error
        if array.size == 0:
            raise ValueError(f"the {what} is empty; at least one token id is needed")
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"a {what} is a flat sequence of integer token ids, got {array.dtype} of shape {array.shape}"
            )
        self._ids(array, what)
        if len(ids) >= self.context:
            raise ContextOverflow(
                f"the {what} has {len(ids)} tokens, the context {self.context}; leave room for at least one new token"
            )
        return ids

    def sampling(self, params: SamplingParams, prompt_tokens: int, prompt: Sequence[int] = ()) -> CheckedParams:
        """The parameters in the scheduler's form, regardless of the seed.

        Args:
            params: as the request has them.
            prompt_tokens: the length of its prompt.
            prompt: the prompt itself, for a limit on thoughts: it may have opened one.

        Raises:
            ValueError: something is out of range; the message says what is accepted.
        """
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling must be SamplingParams, got {params!r:.100}")
        common = params.__dict__.get("_unseeded")
        known = self._seeded.get(id(common))
        if known is not None and type(params.seed) is int and known[1].max_tokens <= self.context - prompt_tokens:
            return known[1]
        checked = self._sampling(params, prompt_tokens, prompt)
        if common is not None and checked.max_tokens == params.max_tokens and _is_plain(params):
            if len(self._seeded) >= MAX_SEEDED:
                self._seeded.clear()
            self._seeded[id(common)] = common, checked
        return checked

    def _sampling(self, params: SamplingParams, prompt_tokens: int, prompt: Sequence[int]) -> CheckedParams:
        limited = params.thinking_token_budget != NO_LIMIT
        plain = _is_plain(params)
        room = self.context - prompt_tokens
        try:
            key = (_PLAIN(params), min(params.max_tokens, room) if type(params.max_tokens) is int else room)
            cached = self._checked.get(key) if plain else None
        except TypeError as error:
            raise ValueError(f"stop_ids must be a frozenset of token ids, stop a tuple of texts: {error}") from error
        if params.seed is not None and not isinstance(params.seed, numbers.Integral):
            raise ValueError(f"seed must be an integer, got {params.seed!r}")
        if cached is not None:
            return cached
        for option in NUMBERS:
            value = getattr(params, option.name)
            if value is not None or option.name != "max_tokens":
                _number(option.name, value, option.kind, **option.bounds)
        _number("top_logprobs", params.top_logprobs, int, ge=0)
        if params.guide is not None and params.allowed is not None:
            raise ValueError("give either allowed or guide: a completion cannot follow both")
        stop_ids = self._eos_ids if params.stop_ids is None else params.stop_ids
        if not isinstance(stop_ids, frozenset):
            raise ValueError(f"stop_ids must be a frozenset of token ids, got {stop_ids!r}")
        if not all(isinstance(i, int | np.integer) and 0 <= i < self.vocab for i in stop_ids):
            raise ValueError(f"stop_ids must be token ids from 0 to {self.vocab - 1}, got {sorted(stop_ids, key=str)}")
        limit = room if params.max_tokens is None else min(int(params.max_tokens), room)
        values = {option.name: option.kind(getattr(params, option.name) or 0) for option in NUMBERS}
        checked = CheckedParams(
            **{**values, "max_tokens": limit},
            stop_ids=stop_ids,
            stop=self._stop(params.stop),
            logit_bias=self._bias(params.logit_bias),
            allowed=self._allowed(params.allowed, limit),
            guide=params.guide,
            thought=self._thought(params.thinking_token_budget, prompt) if limited else None,
        )
        return self._checked.put(key, checked) if plain else checked

    def _ids(self, array: np.ndarray, what: str) -> None:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self.vocab:
            wrong = low if low < 0 else high
            raise ValueError(f"{what} holds token id {wrong}; the model knows 0 to {self.vocab - 1}")

    def _thought(self, budget: int, prompt: Sequence[int]) -> ThoughtLimit:
        if self._thoughts is None:
            raise ValueError(
                f"thinking_token_budget = {budget} needs a model whose vocabulary has the tokens <think> and </think>; "
                "this one has none: leave it out"
            )
        return ThoughtLimit(self._thoughts, self._thoughts.opened_by(prompt), int(budget))

    def _stop(self, stop: Any) -> tuple[str, ...]:
        good = isinstance(stop, tuple) and all(isinstance(s, str) and 0 < len(s) <= MAX_STOP_CHARS for s in stop)
        if not good or len(stop) > MAX_STOPS:
            raise ValueError(
                f"stop must be a tuple of at most {MAX_STOPS} texts of 1 to {MAX_STOP_CHARS} characters, "
                f"got {stop!r:.200}"
            )
        if stop and not self._has_tokenizer:
            raise ValueError("stop needs a tokenizer, and this engine has none; use stop_ids")
        return stop

    def _bias(self, bias: Any) -> tuple[tuple[int, float], ...]:
        if bias is None:
            return ()
        try:
            pairs = sorted((int(token), float(value)) for token, value in dict(bias).items())
        except (TypeError, ValueError) as error:
            raise ValueError(f"logit_bias must map token ids to numbers: {error}") from error
        if len(pairs) > MAX_BIASED or not all(0 <= t < self.vocab and math.isfinite(v) for t, v in pairs):
            raise ValueError(
                f"logit_bias must map at most {MAX_BIASED} token ids from 0 to {self.vocab - 1} to finite numbers, "
                f"got {dict(pairs)!r:.200}"
            )
        return tuple(pairs)

    def _allowed(self, allowed: Any, limit: int) -> tuple[tuple[int, ...], ...] | None:
        if allowed is None:
            return None
        if allowed is self._last_allowed[0]:  # a request's n choices share them
            sequences = self._last_allowed[1]
        else:
            sequences = self._sequences(allowed)
            if isinstance(allowed, tuple) and all(isinstance(ids, tuple) for ids in allowed):
                self._last_allowed = allowed, sequences
        if (longest := max(map(len, sequences))) > limit:
            raise ValueError(f"an allowed sequence has {longest} tokens; at most {limit} are generated")
        return sequences

    def _sequences(self, allowed: Any) -> tuple[tuple[int, ...], ...]:
        checked = {self.prompt(ids, "allowed sequence") for ids in allowed}
        sequences = tuple(sorted(checked, key=_as_bytes))
        if not sequences:
            raise ValueError("allowed is empty: no answer is possible; give at least one sequence, or None for any")
        for one, other in itertools.pairwise(sequences):
            if other[: len(one)] == one:
                raise ValueError(f"allowed sequence {one} is the beginning of {other}; end each with a stop token")
        return sequences


def _is_plain(params: SamplingParams) -> bool:
    """Whether their checked form depends on no prompt and on nothing that may be changed or large."""
    free = params.logit_bias is params.allowed is params.guide is None
    return free and params.thinking_token_budget == NO_LIMIT


def _as_bytes(ids: tuple[int, ...]) -> bytes:
    """Sorts like the ids, but a hundred times faster when long sequences begin alike; sorting blocks other threads."""
    return np.array(ids, ">u4").tobytes()


def _number(
    name: str, value: Any, kind: type, *, ge: float = -math.inf, gt: float = -math.inf, le: float = math.inf
) -> None:
    if kind is int:
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < ge:
            raise ValueError(f"{name} must be an integer of at least {ge}, got {value!r}")
        return
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not (valid and ge <= value <= le and value > gt):
        low = f"above {gt:g}" if ge < gt else f"at least {ge:g}"
        raise ValueError(f"{name} must be {low} and {'finite' if le == math.inf else f'at most {le:g}'}, got {value!r}")
