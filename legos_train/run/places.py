"""Where the weights of a run live: on MLX in this process, or at a service with the Tinker API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference import Engine, load, load_tokenizer
from inference.forward import threads
from legos_envs.table import keyed_generator
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model import Capabilities, MLXBackend, TrainerBackend, World, tinker


@dataclass(frozen=True, slots=True)
class Place:
    """Who holds the weights, and who plays them.

    Attributes:
        base: the base model; None if only its tokenizer is local.
        engine: evaluates, and plays unless `remote` does.
        backend: holds the weights; with several learners, one of each by name.
        remote: plays elsewhere.
    """

    base: Any
    tokenizer: Any
    engine: Any
    backend: TrainerBackend | Mapping[str, TrainerBackend]
    remote: Any = None


def place_of(
    config: TrainConfig,
    world: World | None,
    backend: TrainerBackend | Mapping[str, TrainerBackend] | None,
    run_id: str,
) -> Place:
    """Sets up the place of the weights, ready for training.

    Args:
        config: settings of the run.
        world: all ranks, if there are several.
        backend: the user's; by default as `config.backend` says.
        run_id: part of the names of what is saved elsewhere.

    Raises:
        ConfigError: the place cannot be reached, cannot do what the config asks, or is not one of each learner.
    """
    wanted = set(config.learners) if config.learner else set()
    given = set(backend) if isinstance(backend, Mapping) else set()
    if backend is not None and wanted != given:
        raise ConfigError(
            f"backend has the learners {sorted(given)}, the config {sorted(wanted)}; give one backend for each learner "
            "by name, or a single one where the config has no [[learner]]"
        )
    if config.backend == "tinker" and backend is None:
        return _at_a_service(config, world, run_id)
    model, tokenizer, _ = load(config.model, dequantize=config.dequantize)
    threads.use_threads(config.threads, model)
    if backend is None and config.learner:
        backend = {name: MLXBackend(model, own) for name, own in seeded(config).items()}
    elif backend is None:
        backend = MLXBackend(model, config, world)
    for one in backend.values() if isinstance(backend, Mapping) else [backend]:
        check_capabilities(config, one.capabilities)
    return Place(model, tokenizer, Engine(model, tokenizer, max_rows=config.max_rows), backend)


def seeded(config: TrainConfig) -> dict[str, TrainConfig]:
    """The configs of several learners: the first starts with the weights that it would have alone."""
    out: dict[str, TrainConfig] = {}
    for name, own in config.learners.items():
        seed = int(keyed_generator(config.seed, f"learner {name}").integers(2**31)) if out else config.seed
        out[name] = own.model_copy(update={"seed": seed})
    return out


def _at_a_service(config: TrainConfig, world: World | None, run_id: str) -> Place:
    if world is not None:
        raise ConfigError("backend = 'tinker' trains at a service, which has its own ranks: start a single process")
    check_capabilities(config, tinker.TinkerBackend.capabilities)
    settings = config.tinker
    service = tinker.Service(settings, settings.base or config.model)
    remote = tinker.TinkerEngine(service, settings.in_flight)
    base: Any = None
    engine: Any = remote
    if settings.mirror:
        base, tokenizer, _ = load(config.model, dequantize=config.dequantize)
        threads.use_threads(config.threads, base)
        engine = tinker.MirroredEngine(remote, base, tokenizer, max_rows=config.max_rows)
    else:
        tokenizer = load_tokenizer(config.model)
    backend = tinker.TinkerBackend(
        service, config, remote, run=run_id, prompt=_prompt(tokenizer), vocabulary=len(tokenizer)
    )
    if settings.mirror:
        tinker.check_base(remote, engine, _prompt(tokenizer))
    return Place(base, tokenizer, engine, backend, None if engine is remote else remote)


def _prompt(tokenizer: Any) -> list[int]:
    return [int(token) for token in tokenizer.encode("The game begins. Player 0 has a card and says [check].")]


def check_capabilities(config: TrainConfig, able: Capabilities) -> None:
    """Rejects, in one message, a config that needs more than the backend can do.

    Raises:
        ConfigError: names each setting and what to write instead.
    """
    loss, average = config.loss, config.average.kind
    wanted = {
        "loss.kl_estimator = 'exact' needs whole distributions; use 'k3'": loss.kl_estimator == "exact"
        and not able.exact_kl,
        "loss.entropy needs whole distributions; use 0": loss.entropy > 0 and not able.entropy,
        "loss.legality needs whole distributions; use 0": loss.legality > 0 and not able.entropy,
        f"average.kind = {average!r} needs the weights; use 'none'": average != "none" and not able.weight_average,
        "init_adapter, league.pool_from and loss.magnet_every need own weights; leave them out": not able.own_weights
        and (config.init_adapter is not None or config.league.pool_from is not None or loss.magnet_every > 0),
        "monitor.action = 'rollback' needs own weights; use 'stop'": not able.own_weights
        and config.monitor.action == "rollback",
    }
    if lacking := [what for what, lacks in wanted.items() if lacks]:
        raise ConfigError(f"this backend cannot run these settings: {'; '.join(lacking)}")
