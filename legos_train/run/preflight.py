"""What a run will need, before it runs: memory from the shapes, time from one small measured step."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from inference.loading import is_here
from legos_train.batch import pack
from legos_train.config import TrainConfig, sizes
from legos_train.model import MLXBackend, tinker
from legos_train.run.build import arena_of, build, make_credit
from legos_train.run.memory import needs
from legos_train.run.places import check_capabilities
from legos_train.run.trainer import Trainer

SAMPLE = 64


def estimate(config: TrainConfig) -> str:
    """Loads the model, plays and trains on a small batch (the weights are thrown away), and scales up.

    Small games repeat their prompts, and what is equal is computed once, so the estimate is an upper bound. Of a model
    in `config.sizes` that would have to be downloaded, its shape tells what it needs.

    Raises:
        ConfigError: the settings do not fit the envs or each other.
    """
    if config.backend == "tinker":
        make_credit(config, arena_of(config))
        check_capabilities(config, tinker.TinkerBackend.capabilities)
        here = (
            f"the base {config.model}, to measure with" if config.tinker.mirror else f"the tokenizer of {config.model}"
        )
        return f"weights, optimiser and sampling are at the service; here is {here}"
    known = sizes.shape_of(config.model)
    if known is not None and not is_here(config.model):
        arena = arena_of(config)
        make_credit(config, arena)
        return needs(config, known)
    size = min(config.batch_size, max(SAMPLE, config.grouped))
    size -= size % config.grouped
    small = config.model_copy(update={"batch_size": size})
    mx.reset_peak_memory()
    parts = build(small)
    trainer, backend = Trainer(parts), parts.backend
    assert isinstance(backend, MLXBackend)
    try:
        weights = backend.policy.trainable()
        base = _bytes(backend.policy.model) - _nbytes(weights)
        state = sum(_nbytes(group) for group in backend.save_state().tensors.values())
        began = time.perf_counter()
        episodes = trainer.play(1)
        played = time.perf_counter()
        batch = pack(episodes, parts.credit.assign(episodes), max_tokens=config.context, policy_version=0)
        parts.learner.update(batch)
        learned = time.perf_counter()
        scale = config.batch_size / size
        seconds = (learned - began) * scale * config.steps
        turns = [len(t.prompt_tokens or ()) for e in episodes for x in e.trajectories.values() for t in x.turns]
        return "\n".join(
            [
                f"base model      {_mib(base)}",
                f"LoRA, optimiser, average  {_mib(state)} ({sum(w.size for w in weights.values()):,} weights trained)",
                f"peak memory of MLX for {size} episodes  {_mib(mx.get_peak_memory())}",
                f"an episode      {len(turns) / size:.1f} turns, prompts of {np.mean(turns):.0f} tokens",
                f"a step          at most {(played - began) * scale:.2f} s of play and "
                f"{(learned - played) * scale:.2f} s of learning for {config.batch_size} episodes",
                f"{config.steps} steps       at most {seconds / 60:.1f} minutes",
            ]
        )
    finally:
        parts.close()


def _nbytes(arrays: dict[str, mx.array]) -> int:
    return sum(a.nbytes for a in arrays.values() if isinstance(a, mx.array))


def _bytes(model: Any) -> int:
    leaves: Any = tree_flatten(model.parameters())
    return sum(array.nbytes for _, array in leaves)


def _mib(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"
