"""Tries adapters out before they are served: finite weights can have non-finite products."""

from __future__ import annotations

import threading

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache

from inference import loading
from inference.adapters import AdapterBank, PreparedAdapter
from inference.types import AdapterError

TOKENS = 8
KNOWN = 16
"""Of so many adapters it remembers that they passed: a run publishes the same weights under several names."""


class Probe:
    """A second module tree over the model's arrays, so that any thread can run a forward pass with an adapter.

    Args:
        model: the base model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = loading.clone_structure(model)
        self._bank = AdapterBank(self._model, slots=1)
        self._lock = threading.Lock()
        self._passed: dict[str, None] = {}

    def __call__(self, prepared: PreparedAdapter, vocab: int) -> None:
        """Runs one forward pass, unless the same weights passed lately. AdapterError if a logit is not finite.

        Args:
            prepared: the adapter.
            vocab: the size of the vocabulary.
        """
        ids = np.random.default_rng(0).integers(0, min(vocab, 1000), (1, TOKENS), dtype=np.int32)
        with self._lock:
            if prepared.digest in self._passed:
                return
            adapter = self._bank.install("probe", prepared, version=0)
            try:
                self._bank.select([adapter], TOKENS)
                logits = self._model(mx.array(ids), cache=make_prompt_cache(self._model)).astype(mx.float32)
                mx.eval(logits)
            finally:
                self._bank.unpublish("probe")
            if not np.isfinite(np.asarray(logits)).all():
                raise AdapterError(
                    "the model's logits are not finite with this adapter (its weights are, but products of them "
                    "overflow); the adapter is not published"
                )
            self._passed[prepared.digest] = None
            if len(self._passed) > KNOWN:
                del self._passed[next(iter(self._passed))]
