"""Who sits in a seat: a model behind an engine, or code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inference import Completion, Request, SamplingParams
from legos_envs import Policy
from legos_train.players.actors import TOKENS

if TYPE_CHECKING:  # policies of code and endpoints need no tokenizer
    from inference.text import Renderer


@dataclass(slots=True)
class ModelPlayer:
    """A seat answered by a model: an engine, one of its adapters (None: the base), and how to sample."""

    engine: Engines
    renderer: Renderer
    adapter: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = TOKENS
    system: str | None = None
    context: int | None = None

    def sampling(self, max_tokens: int, seed: int) -> SamplingParams:
        """How one action is drawn."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=seed,
            stop_ids=self.renderer.stop_ids,
        )


Player = ModelPlayer | Policy


class Engines(Protocol):
    """What a model seat needs of an engine: `inference.Engine`, or one behind HTTP (remote.py)."""

    def submit(self, request: Request) -> int:
        """Queues a request. Raises ContextOverflow when prompt and answer do not fit."""
        ...

    def step(self) -> list[Completion]:
        """What has been completed since."""
        ...

    def abort(self, request_id: int) -> None: ...

    def settle(self) -> list[Completion]:
        """Ends what was aborted, at once."""
        ...
