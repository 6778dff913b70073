"""Small models, policies over them, and batches for the tests of the policy."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import gemma2, llama, qwen3

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.config.sections import LoRASettings
from legos_train.loss.batch import pack
from legos_train.model.policy import LoRAPolicy

VOCABULARY = 64
PREFIX = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]


def make_model(kind="qwen3", seed=0, **options):
    """A tiny random model whose distributions are neither flat nor one-hot."""
    shape = {
        "model_type": kind,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "head_dim": 8,
        "tie_word_embeddings": True,
        "rope_theta": 1e4,
        **options,
    }
    module = {"qwen3": qwen3, "llama": llama, "gemma2": gemma2}[kind]
    model = module.Model(module.ModelArgs.from_dict(shape))
    keys = iter(mx.random.split(mx.random.key(seed), 100))
    weights = [
        (name, mx.random.normal(w.shape, key=next(keys)) * (0.4 if "embed" in name else 1.2 * w.shape[-1] ** -0.5))
        if w.ndim == 2
        else (name, w)
        for name, w in tree_flatten(model.parameters())
    ]
    model.load_weights(weights)
    mx.eval(model.parameters())
    return model


def make_policy(model=None, seed=0, **options):
    """A policy whose LoRA weights have moved off their start, so that every gradient is non-zero."""
    policy = LoRAPolicy(
        model if model is not None else make_model(), LoRASettings(rank=3, scale=2.0, **options), seed=seed
    )
    rng = np.random.default_rng(seed + 1)
    policy.load(
        {n: w + mx.array(0.05 * rng.normal(size=w.shape).astype(np.float32)) for n, w in policy.trainable().items()}
    )
    return policy


def make_batch(turns=20, prefix=PREFIX, seed=0):
    """Two-turn dialogues with few distinct prompts and actions, so that rows and contexts repeat."""
    rng = np.random.default_rng(seed)
    episodes, advantages = [], []
    for i in range(turns):
        prompt = [*prefix, 20 + int(rng.integers(3)), 30]
        first = [40, 41 + int(rng.integers(3)), 2][: int(rng.integers(1, 4))]
        second = [40, 41 + int(rng.integers(2)), 2]
        made = [Turn((), "", 0.0, None, prompt, first, rng.normal(-2, 0.3, len(first)).tolist(), 0)]
        after = [*prompt, *first, 21] if i % 3 else [*prefix, 22, *range(int(rng.integers(1, 9)))]
        made.append(Turn((), "", 0.0, None, after, second, rng.normal(-2, 0.3, 3).tolist(), 0))
        episodes.append(Episode("G", i, {}, {"a": Trajectory("a", "r", True, made)}))
        advantages.append({"a": rng.normal(size=2)})
    return pack(episodes, advantages)


def naive_logits(model, batch):
    """The definition: for every sampled token the last logits of the model run on what came before it, alone.

    Once for each context, for many are the same.
    """
    contexts = [tuple(batch.context(int(p))) for p in batch.position]
    logits = {context: model(mx.array([context]))[0, -1] for context in dict.fromkeys(contexts)}
    return mx.stack([logits[context] for context in contexts])


def close(a, b, tolerance=1e-5):
    """Equal relative to the largest entry."""
    a, b = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)
    return bool(np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-12))
