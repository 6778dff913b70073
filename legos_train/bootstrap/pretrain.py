"""Pretraining of the bundled model: AdamW on soft targets, a fixed number of steps, everything from one seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.optimizers import AdamW, clip_grad_norm
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from legos_train.bootstrap import texts
from legos_train.bootstrap.tokenizer import CONTEXT, ChatEncoder
from legos_train.bootstrap.training_rows import PROMPT, RECALL, REPLY, RESULT, PretrainingBatch, collate, make_row
from legos_train.loss import distribution
from legos_train.model import site_hidden

LEGALITY = 4.0
Report = Callable[[int, int, dict[str, float]], None]
"""Called with the step, the number of steps, and the loss by kind of token."""
KIND_NAMES = {REPLY: "reply", RESULT: "result", PROMPT: "prompt", RECALL: "recall"}


def model_config(vocab_size: int) -> dict[str, Any]:
    """config.json of the bundled model: Qwen3, about 0.74 M parameters."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 512,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.08,
        "use_cache": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def new_model(config: dict[str, Any], seed: int) -> qwen3.Model:
    """A fresh model; a function of config and seed.

    Embeddings begin with standard deviation 0.08. With the usual 0.02 the two layers do not learn to copy a word from
    the prompt within the steps of this recipe.
    """
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    rng = np.random.default_rng([seed, 1])
    fresh = []
    for name, value in cast(list[tuple[str, mx.array]], tree_flatten(model.parameters())):
        if name.endswith("norm.weight"):
            continue
        scale = config["initializer_range"] if "embed" in name else 1.0 / math.sqrt(3.0 * value.shape[-1])
        fresh.append((name, mx.array(rng.normal(0.0, scale, value.shape).astype(np.float32))))
    model.load_weights(fresh, strict=False)
    mx.eval(model.parameters())
    return model


def _hidden(model: qwen3.Model, batch: PretrainingBatch) -> mx.array:
    return mx.concatenate([site_hidden(model, cast(Any, part), part.prefix) for part in batch.parts])


class Readers(nn.Module):
    """The model, and the matrices (K, H, H) that read recalled tokens off its hidden states; these are thrown away."""

    def __init__(self, model: qwen3.Model, places: int, seed: int):
        super().__init__()
        self.model = model
        width = model.args.hidden_size
        matrices = np.random.default_rng([seed, 2]).normal(0.0, 1.0 / math.sqrt(width), (places, width, width))
        self.readers = mx.array(matrices.astype(np.float32))

    def hidden(self, batch: PretrainingBatch) -> mx.array:
        """(N, H) at the sites; where something is recalled, what its reader makes of it."""
        states = _hidden(self.model, batch)
        if not (batch.kinds > RECALL).any():
            return states
        recalled, plain = np.flatnonzero(batch.kinds > RECALL), np.flatnonzero(batch.kinds <= RECALL)
        matrices = self.readers[mx.array(batch.kinds[recalled] - RECALL - 1)]
        read = (states[mx.array(recalled)][:, None] @ matrices)[:, 0]
        back = np.argsort(np.concatenate([plain, recalled]), kind="stable")
        return mx.concatenate([states[mx.array(plain)], read])[mx.array(back)]


def batch_loss(model: qwen3.Model | Readers, batch: PretrainingBatch) -> tuple[mx.array, mx.array]:
    """The weighted loss, a scalar, and KL(target || model) at each site (N,), in nats.

    In the loss, tokens of replies have a further term: -log of the probability that any token goes on with a legal
    reply. It is part of the divergence already, and is counted `LEGALITY` times more. A batch with recalled tokens
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
    legal = mx.log(mx.sum(mx.where(probs > 0, mx.exp(picked), 0.0), axis=1))
    emphasis = mx.array(np.where(batch.kinds == REPLY, LEGALITY, 0.0).astype(np.float32))
    return mx.sum(mx.array(batch.weights) * (divergence - emphasis * legal)), divergence


def learning_rate(step: int, steps: int, peak: float, warmup: int = 30, floor: float = 0.02) -> float:
    """Linear warm-up, then a cosine to `floor` times the peak."""
    warm = min(1.0, (step + 1) / warmup)
    return peak * warm * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * step / steps)))


def pretrain(
    model: qwen3.Model,
    encoder: ChatEncoder,
    *,
    steps: int,
    seed: int,
    batch_size: int = 16,
    peak: float = 1.5e-3,
    report: Report | None = None,
    dialogues: Iterator[texts.Dialogue] | None = None,
) -> None:
    """Train `model` in place on `dialogues`, by default `texts.stream(seed)`.

    Raises FloatingPointError when the loss is not finite.
    """
    optimizer = AdamW(learning_rate=peak, betas=[0.9, 0.98], weight_decay=0.01)
    rng = Random(f"rows {seed}")
    dialogues = texts.stream(seed) if dialogues is None else dialogues
    pool: list[texts.Dialogue] = list(islice(dialogues, 16 * batch_size))

    def draw() -> texts.Dialogue:
        # An episode's turns come one after the other: a pool keeps them from sharing a batch.
        at = rng.randrange(len(pool))
        dialogue, pool[at] = pool[at], next(dialogues)
        return dialogue

    readers = Readers(model, max(texts.RECALLED.values(), default=0), seed)
    step_loss = nn.value_and_grad(readers, batch_loss)
    for step in range(steps):
        batch = collate([make_row(draw(), encoder, rng) for _ in range(batch_size)])
        # What is read off early stays; towards the end evenness among the legal moves comes first.
        batch.weights[batch.kinds > RECALL] *= 1.0 - 0.9 * step / steps
        optimizer.learning_rate = learning_rate(step, steps, peak)
        (loss, divergence), gradients = step_loss(readers, batch)
        gradients, _ = clip_grad_norm(gradients, 1.0)
        optimizer.update(readers, gradients)
        mx.eval(readers.parameters(), optimizer.state, loss, divergence)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss is {loss.item()} at step {step}; nothing was saved")
        if report is not None:
            gaps = np.array(divergence)
            losses = {
                name: float(gaps[np.minimum(batch.kinds, RECALL) == kind].mean())
                for kind, name in KIND_NAMES.items()
                if (np.minimum(batch.kinds, RECALL) == kind).any()
            }
            report(step + 1, steps, losses)
