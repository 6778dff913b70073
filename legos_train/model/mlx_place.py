"""Training on MLX in this process: one model, that the learner trains and the engine plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inference import Engine, load
from inference.forward import threads
from legos_envs.table import keyed_generator
from legos_train.config import TrainConfig
from legos_train.model.backends import Given, Place, check_capabilities
from legos_train.model.mlx_backend import MLXBackend
from legos_train.model.ranks import World


def place(config: TrainConfig, world: World | None, run_id: str, given: Given | None = None) -> Place:
    """See `BackendModule`. By default the learner trains LoRA weights on the engine's own model."""
    del run_id
    backend = given
    model, tokenizer, _ = load(config.model, dequantize=config.dequantize)
    threads.use_threads(config.threads, model)
    if backend is None and config.learner:
        backend = {name: MLXBackend(model, own) for name, own in seeded(config).items()}
    elif backend is None:
        backend = MLXBackend(model, config, world)
    for one in backend.values() if isinstance(backend, Mapping) else [backend]:
        check_capabilities(config, one.capabilities)

    def engine(tokenizer: Any) -> Engine:
        return Engine(model, tokenizer, max_rows=config.max_rows)

    first = engine(tokenizer)
    return Place(model, tokenizer, first, backend, second=lambda: engine(first.tokenizer), by_config=True)


def dry_run_note(config: TrainConfig) -> str | None:
    """See `BackendModule`: steps are measured."""
    del config
    return None


def seeded(config: TrainConfig) -> dict[str, TrainConfig]:
    """The configs of several learners: the first starts with the weights that it would have alone."""
    out: dict[str, TrainConfig] = {}
    for name, own in config.learners.items():
        seed = int(keyed_generator(config.seed, f"learner {name}").integers(2**31)) if out else config.seed
        out[name] = own.model_copy(update={"seed": seed})
    return out
