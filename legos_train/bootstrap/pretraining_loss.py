"""The loss of pretraining: soft targets, a term for illegal replies, and facts that are read off the hidden states."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models import qwen3

from legos_train.bootstrap import packed_rows
from legos_train.bootstrap.training_rows import REPLY, PretrainingBatch
from legos_train.loss import distribution

LEGALITY = 4.0


def _hidden(model: qwen3.Model, batch: PretrainingBatch) -> mx.array:
    firsts = np.cumsum([0, *(len(part.tokens) for part in batch.parts)])
    rows = [row for part in batch.parts for row in part.tokens]
    site_rows = np.concatenate([part.rows + first for part, first in zip(batch.parts, firsts, strict=False)])
    laid = packed_rows.packed(rows, site_rows, np.concatenate([part.cols for part in batch.parts]))
    return packed_rows.packed_hidden(model, laid)


class Readers(nn.Module):
    """The model, and the matrices (K, H, H) that read facts off its hidden states; these are discarded.

    Args:
        model: the model to train.
        count: how many readers; see `training_rows.READ_BEST` for what each reads.
        seed: seed of the initial matrices.
    """

    def __init__(self, model: qwen3.Model, count: int, seed: int):
        super().__init__()
        self.model = model
        width = model.args.hidden_size
        matrices = np.random.default_rng([seed, 2]).normal(0.0, 1.0 / math.sqrt(width), (count, width, width))
        self.readers = mx.array(matrices.astype(np.float32))

    def hidden(self, batch: PretrainingBatch) -> mx.array:
        """(N, H) at the sites; transformed by the reader at its sites."""
        states = _hidden(self.model, batch)
        order, pieces = [np.flatnonzero(batch.readers < 0)], []
        pieces.append(states[mx.array(order[0])])
        for reader in np.unique(batch.readers[batch.readers >= 0]):
            at = np.flatnonzero(batch.readers == reader)
            order.append(at)
            pieces.append(states[mx.array(at)] @ self.readers[int(reader - 1) % len(self.readers)])
        back = np.argsort(np.concatenate(order), kind="stable")
        return mx.concatenate(pieces)[mx.array(back)]


def batch_loss(model: qwen3.Model | Readers, batch: PretrainingBatch) -> tuple[mx.array, mx.array]:
    """The weighted loss, a scalar, and KL(target || model) at each site (N,), in nats.

    In the loss, tokens of replies have an additional term: -log of the probability of continuing with a legal
    reply. It is already part of the divergence, and is added `LEGALITY` times more. A batch with sites of readers
    needs `Readers`.
    """
    if isinstance(model, Readers):
        body, hidden = model.model, model.hidden(batch)
    else:
        body, hidden = model, _hidden(model, batch)
    logprobs, _ = distribution(body.model.embed_tokens.as_linear(hidden))
    probs = mx.array(batch.probs)
    picked = mx.take_along_axis(logprobs, mx.array(batch.targets), axis=1)
    entropy = -mx.sum(probs * mx.log(mx.maximum(probs, 1e-9)), axis=1)
    divergence = -mx.sum(probs * picked, axis=1) - entropy
    legal = mx.logsumexp(mx.where(probs > 0, picked, -mx.inf), axis=1)
    emphasis = mx.array(np.where(batch.kinds == REPLY, LEGALITY, 0.0).astype(np.float32))
    return mx.sum(mx.array(batch.weights) * (divergence - emphasis * legal)), divergence
