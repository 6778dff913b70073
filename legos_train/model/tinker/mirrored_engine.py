"""An engine over a local copy of the base for weights held by a service: they are fetched when evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from inference import Engine, Request
from legos_train.errors import ConfigError
from legos_train.model.tinker.sampler import TinkerEngine
from legos_train.model.tinker.weights import RemoteWeights

MOST_APART = 1.0
"""Nats between two copies of a base model explained by half precision; other models are further apart."""


class MirroredEngine(Engine):
    """An engine whose adapters are fetched on first use: most versions of a policy are played but never evaluated.

    Attributes:
        at_service: the engine with the same names at the service, used to check that new weights are served.
    """

    def __init__(self, at_service: TinkerEngine, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.at_service = at_service
        self._later: dict[str, tuple[Mapping[str, mx.array], dict[str, Any]]] = {}
        self._given: dict[str, tuple[Mapping[str, mx.array], dict[str, Any]]] = {}

    def publish(self, name: str, weights: Any, **options: Any) -> str:  # type: ignore[override]
        """Registers weights under a name, to be fetched later."""
        self._later[name] = self._given[name] = (weights, options)
        return ""

    def unpublish(self, name: str, *, for_good: bool = True) -> None:
        """Removes a name, fetched or not."""
        self._given.pop(name, None)
        promised = self._later.pop(name, None) is not None
        if not promised or name in super().adapters():
            super().unpublish(name, for_good=for_good)

    def adapters(self) -> dict[str, Any]:
        """The current version of each name; None for those not yet fetched."""
        return {**super().adapters(), **dict.fromkeys(self._later)}

    def submit(self, request: Request) -> int:
        self._fetch(request.adapter)
        return super().submit(request)

    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], adapter: str | None = None
    ) -> Any:
        self._fetch(adapter)
        return super().score(prompts, continuations, adapter)

    def next_logits(self, prompts: Sequence[Sequence[int]], adapter: str | None = None) -> Any:
        """The service's result, see `TinkerEngine.next_logits`; another engine may do the playing there."""
        if adapter is not None:
            weights, options = self._given[adapter]
            if isinstance(weights, RemoteWeights) and self.at_service.path_of(adapter) != weights.path:
                self.at_service.publish(adapter, weights, **options)
        return np.asarray(self.at_service.next_logits(prompts, adapter))

    def _fetch(self, name: str | None) -> None:
        if name is not None and name in self._later:
            weights, options = self._later.pop(name)
            super().publish(name, dict(weights), **options)


def check_base(at_service: TinkerEngine, engine: Engine, prompt: Sequence[int], most: float = MOST_APART) -> float:
    """Rejects a service whose base model differs from the local one.

    Returns:
        The largest difference of a token's log-probability, in nats.

    Raises:
        ConfigError: it exceeds `most`.
    """
    here = engine.score([prompt[:1]], [prompt[1:]])[0]
    gap = float(np.abs(at_service.score([prompt[:1]], [prompt[1:]])[0] - here).max())
    if not gap <= most:
        raise ConfigError(
            f"the base model here and {at_service.service.base!r} at {at_service.service.url} differ by {gap:.3g} nats "
            f"about a token (at most {most:g} are accepted): give the same base as --model and --tinker.base"
        )
    return gap
