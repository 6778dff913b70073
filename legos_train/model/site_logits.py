"""Logits where a policy's tokens were sampled, computed in the fastest way that a model allows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from inference import recurrence
from inference.forward import blocks, seam
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.loss import SiteStates
from legos_train.loss.batch import Batch, pack
from legos_train.model.decoder import site_hidden
from legos_train.model.last_feed_forward import at_sites
from legos_train.model.shared_prefix import has_plain_cache, hidden_states, windows_of
from legos_train.model.training_mode import modules_that_ask, set_training

logger = logging.getLogger(__name__)

MIN_PREFIX = 8  # a shorter prefix saves less than the second pass through the layers costs


class SiteLogits:
    """The logits of a model, any of mlx-lm's, at the sites of a batch.

    There are four ways to compute them; the constructor tries them on a few tokens and keeps the first that matches the
    model:

    * `"sites"` (decoder.py): shared prefix once, last block and head at the sites only;
    * `"prefix"` (shared_prefix.py): shared prefix once, head at the sites only; any model whose body and head can be
      told apart and whose layers keep keys and values, windows of them, or recurrent states;
    * `"body"`: the same, but for the prefix, which is computed in every row;
    * `"plain"`: the whole model on every token.

    Modules whose gradient needs it are put in training mode (training_mode.py).

    Attributes:
        path: the way.
        trims: whether with `"prefix"` and `"body"` the last feed-forward part, too, sees the sites only.
        notes: why faster ways were rejected, except for `trims`.
        vocabulary: V.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.notes: list[str] = []
        self.path, self.trims = "plain", False
        self._plain, self._unproven = has_plain_cache(model), windows_of(model)
        self.path = self._probe()

    def __call__(self, batch: Batch) -> mx.array:
        """(K, V)."""
        return self._by(self.path, batch)

    def states(self, batch: Batch) -> SiteStates:
        """The logits still to be computed from hidden states."""
        with recurrence.quickly():
            return SiteStates(*self._states(self.path, batch), self.vocabulary)

    def _by(self, path: str, batch: Batch) -> mx.array:
        with recurrence.quickly():
            hidden, head = self._states(path, batch)
            return head(hidden)

    def _states(self, path: str, batch: Batch) -> tuple[mx.array, Callable[[mx.array], mx.array]]:
        prefix = prefix_of(batch)
        if path == "sites":
            return site_hidden(self.model, batch, prefix), self.head
        tokens, rows, cols = mx.array(batch.tokens), mx.array(batch.rows), mx.array(batch.cols)
        if path == "plain":
            return self.model(tokens)[rows, cols], lambda logits: logits
        apart = seam(self.model)
        if apart is None:
            raise TypeError("its body and its head cannot be told apart")
        body, head = apart
        start = self._start(prefix, tokens.shape[1]) if path == "prefix" else 0
        if self._unproven and start >= self._unproven[0] and not self._proven(body, tokens[:2], start):
            start = 0
        cols = cols - start
        with at_sites(body, (tokens.shape[0], tokens.shape[1] - start), rows, cols) if self.trims else nullcontext():
            hidden = hidden_states(self.model, body, tokens, start)
        return hidden[rows, cols], lambda chosen: head(chosen[None])[0]

    def _proven(self, body: Any, tokens: mx.array, start: int) -> bool:
        """Whether rows may share a prefix beyond a window, tried on two of them; if not, none share any from now on.

        The tokens that the constructor tries are too few to see that a model masks its window otherwise than mlx-lm's
        cache keeps it. Each window is tried once.
        """
        shared, whole = hidden_states(self.model, body, tokens, start), hidden_states(self.model, body, tokens, 0)
        self._unproven = [window for window in self._unproven if window > start]
        if (off := _distance(shared, whole[:, start:])) <= 1.0:
            return True
        self.path, self._unproven = "body", []
        self.notes.append(f"path 'prefix' changes what comes after a window by {off:.3g} times the rounding allowed")
        logger.warning("%s", self.notes[-1])
        return False

    def _start(self, prefix: int, width: int) -> int:
        """Columns to compute once; at least two are left: mlx-lm's steps of one position have no gradient on Metal."""
        shared = prefix if self._plain else min(prefix, width - 2)
        return shared if shared >= MIN_PREFIX else 0

    def head(self, hidden: mx.array) -> mx.array:
        """Logits (K, V) of hidden states (K, H), for the path `"sites"`."""
        if "lm_head" in self.model:
            return self.model.lm_head(hidden)
        return self.model.model.embed_tokens.as_linear(hidden)

    def _probe(self) -> str:
        """The first path whose logits on a few tokens match the model's; also sets `vocabulary`."""
        batch, alone = probe_batch(), probe_batch(rows=1)
        plain = self._by("plain", batch)
        self.vocabulary = plain.shape[-1]
        if asking := modules_that_ask(self.model):
            set_training(asking, True)
            trained = self._by("plain", batch)
            if (off := _distance(trained, plain)) > 1.0:
                set_training(asking, False)
                names = sorted({type(module).__name__ for module in asking})
                self.notes.append(
                    f"training mode of {', '.join(names)} changes the logits by {off:.3g} times the rounding allowed, "
                    "so they stay in evaluation mode; on Metal their kernels may have no gradient"
                )
        ways = [("prefix", True), ("prefix", False), ("body", True), ("body", False)]
        if self._plain and all(map(blocks.called_plainly, self.model.layers)):
            ways = [("sites", False), *ways]
        for path, self.trims in ways:
            try:
                self._by(path, alone)
                off = _distance(self._by(path, batch), plain)
            except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                why = f"does not fit this model: {type(error).__name__}: {error}"
            else:
                if off <= 1.0:
                    return path
                why = f"changes the logits by {off:.3g} times the rounding allowed"
            if not self.trims:
                self.notes.append(f"path {path!r} {why}")
        return "plain"


def prefix_of(batch: Batch) -> int:
    """The number of columns to compute once for all rows."""
    return batch.prefix if batch.distinct_rows > 1 and batch.prefix >= MIN_PREFIX else 0


def probe_batch(rows: int = 3) -> Batch:
    """Short rows, at most three, with a shared prefix of MIN_PREFIX tokens; ids 0 to 3 exist in every vocabulary."""
    start = [1, 2, 3, 0, 2, 1, 3, 1][:MIN_PREFIX]
    endings = ([2, 0, 1, 3], [2, 1], [2, 3, 3])[:rows]
    episodes = [
        Episode("probe", 0, {}, {"a": Trajectory("a", "a", turns=[Turn((), "", 0.0, None, row[:-1], row[-1:], [0.0])])})
        for row in ([*start, *ending] for ending in endings)
    ]
    return pack(episodes, [{"a": np.zeros(1)}] * len(endings))


def _distance(a: mx.array, b: mx.array) -> float:
    """Largest difference, in units of the rounding error of the dtype that the model computes in."""
    tolerance = 1e-4 if b.dtype == mx.float32 else 5e-2
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    return float(np.array(mx.max(mx.abs(a - b)) / (tolerance * (1.0 + mx.max(mx.abs(b))))))
