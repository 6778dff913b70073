"""Training at a service with the Tinker API, with a copy of the base here for evaluation, or without."""

from __future__ import annotations

from typing import Any

from inference import load, load_tokenizer
from inference.forward import threads
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model.backends import Given, Place, check_capabilities
from legos_train.model.ranks import World
from legos_train.model.tinker.mirrored_engine import MirroredEngine, check_base
from legos_train.model.tinker.sampler import TinkerEngine
from legos_train.model.tinker.service import Service
from legos_train.model.tinker.tinker_backend import TinkerBackend


def place(config: TrainConfig, world: World | None, run_id: str, given: Given | None = None) -> Place:
    """See `BackendModule`."""
    if world is not None:
        raise ConfigError("backend = 'tinker' trains at a service, which has its own ranks: start a single process")
    if given is not None:
        raise ConfigError(
            "backend = 'tinker' plays only weights at the service: leave it out to train your own backend"
        )
    check_capabilities(config, TinkerBackend.capabilities)
    settings = config.tinker
    service = Service(settings, settings.base or config.model)
    remote = TinkerEngine(service, settings.in_flight)
    base: Any = None
    engine: Any = remote
    if settings.mirror:
        base, tokenizer, _ = load(config.model, dequantize=config.dequantize)
        threads.use_threads(config.threads, base)
        engine = MirroredEngine(remote, base, tokenizer, max_rows=config.max_rows)
    else:
        tokenizer = load_tokenizer(config.model)
    prompt = [int(token) for token in tokenizer.encode("The game begins. Player 0 has a card and says [check].")]
    backend = TinkerBackend(service, config, remote, run=run_id, prompt=prompt, vocabulary=len(tokenizer))
    if settings.mirror:
        check_base(remote, engine, prompt)
    elsewhere = None if engine is remote else remote
    return Place(base, tokenizer, engine, backend, elsewhere, lambda: TinkerEngine(service, settings.in_flight))


def dry_run_note(config: TrainConfig) -> str | None:
    """See `BackendModule`: nothing is asked of the service, which may cost money."""
    check_capabilities(config, TinkerBackend.capabilities)
    here = f"the base {config.model}, for evaluation" if config.tinker.mirror else f"the tokenizer of {config.model}"
    return f"weights, optimiser and sampling are at the service; here is {here}"
