"""Players of seats: a model behind an engine, or code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from inference import Completion, DrawParams, Request, SamplingParams
from inference.thoughts import NO_LIMIT, ThoughtLimit
from inference.types import UNCHANGED
from legos_envs import Policy
from legos_train.errors import PolicyError
from legos_train.rollout.players.actors import TOKENS

if TYPE_CHECKING:  # policies of code and endpoints need no tokenizer
    from inference.text import Renderer


@dataclass(slots=True)
class ModelPlayer:
    """A seat answered by a model: an engine, one of its adapters (None: the base), and how to sample."""

    engine: Engines
    renderer: Renderer
    adapter: str | None = None
    draw: DrawParams = UNCHANGED
    max_tokens: int = TOKENS
    system: str | None = None
    context: int | None = None
    thinking_tokens: int | None = None

    def __post_init__(self) -> None:
        limit = self.thinking_tokens
        if limit is not None and limit >= self.max_tokens:
            raise PolicyError(
                f"thinking_tokens ({limit}) must be less than max_tokens ({self.max_tokens}), which counts thought and "
                "action"
            )
        if limit is not None and self.renderer.thoughts is None:
            raise PolicyError(
                f"thinking_tokens = {limit} needs a model whose vocabulary has the tokens <think> and </think>; leave "
                "it out"
            )

    def room(self, prompt: Sequence[int]) -> int:
        """How many tokens an answer may have; less than 1 if the prompt exceeds the context."""
        return self.max_tokens if self.context is None else min(self.max_tokens, self.context - len(prompt))

    def sampling(self, max_tokens: int, seed: int | None) -> SamplingParams:
        """The sampling parameters of one action. If the context leaves less room, the thought gets shorter."""
        budget = NO_LIMIT
        if self.thinking_tokens is not None:
            budget = max(0, self.thinking_tokens - max(0, self.max_tokens - max_tokens))
        return _drawn(max_tokens, self.draw, self.renderer.stop_ids, budget).seeded(seed)

    def written(self, prompt: Sequence[int], tokens: Sequence[int], sampling: SamplingParams) -> list[int] | None:
        """The positions in a reply written by the thought limit, not the model; None if there are none."""
        markers, budget = self.renderer.thoughts, sampling.thinking_token_budget
        if budget == NO_LIMIT or markers is None:
            return None
        at = ThoughtLimit(markers, markers.opened_by(prompt), budget).closed_at(tokens)
        return None if at is None else [at]


@lru_cache(256, typed=True)
def _drawn(max_tokens: int, draw: DrawParams, stop_ids: frozenset[int], budget: int) -> SamplingParams:
    """The sampling parameters shared by the turns of a seat."""
    return SamplingParams(**vars(draw), max_tokens=max_tokens, stop_ids=stop_ids, thinking_token_budget=budget)


Player = ModelPlayer | Policy


class Engines(Protocol):
    """The interface of an engine for a model's seat: `inference.Engine`, or one behind HTTP (remote.py)."""

    def submit(self, request: Request) -> int:
        """Queues a request. Raises ContextOverflow if prompt and answer do not fit."""
        ...

    def step(self) -> list[Completion]:
        """The completions since the last call."""
        ...

    def abort(self, request_id: int) -> None: ...

    def settle(self) -> list[Completion]:
        """Ends aborted requests immediately."""
        ...
