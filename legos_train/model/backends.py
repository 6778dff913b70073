"""What a run needs of a backend: where its weights are, who plays them, and what a dry run says. Loads no MLX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model.backend import Capabilities, TrainerBackend

if TYPE_CHECKING:
    from legos_train.model.ranks import World

Given = TrainerBackend | Mapping[str, TrainerBackend]
"""A backend, or with several learners one of each by name."""


@dataclass(frozen=True, slots=True)
class Place:
    """Who holds the weights, and who plays them.

    An engine has these methods of `inference.Engine`: `submit`, `step`, `abort` and `settle`, by which it plays;
    `publish` and `unpublish`, with the weights that the backend's `publish` passes on, and `adapters`, their names;
    `score`, for probabilities of replies; `next_logits`, which must differ for other weights; `drop_caches`, `close`.

    Attributes:
        base: the base model; None if only its tokenizer is local.
        engine: evaluates, and plays unless `remote` does.
        backend: holds the weights.
        remote: plays elsewhere.
        second: makes another engine, for the thread that generates episodes in asynchronous mode; None: there is none.
        by_config: whether another process can make such an engine from the config alone.
    """

    base: Any
    tokenizer: Any
    engine: Any
    backend: Given
    remote: Any = None
    second: Callable[[], Any] | None = None
    by_config: bool = False


class BackendModule(Protocol):
    """The functions of the module that a row of `BACKENDS` names."""

    def place(self, config: TrainConfig, world: World | None, run_id: str, given: Given | None = None) -> Place:
        """Sets up the place of the weights, ready for training.

        Args:
            config: settings of the run.
            world: all ranks, if there are several.
            run_id: part of the names of what is saved elsewhere.
            given: the caller's own backend, whose weights are to be played here; by default the place makes one.

        Raises:
            ConfigError: the place cannot be reached, cannot do what the config asks, or plays no weights but its own.
        """
        ...

    def dry_run_note(self, config: TrainConfig) -> str | None:
        """A dry run's text, where steps cannot be measured without training; None: they are measured.

        Raises:
            ConfigError: the place cannot do what the config asks.
        """
        ...


def named_by(config: TrainConfig) -> BackendModule:
    """The module of the config's backend."""
    module: Any = importlib.import_module(config.backend_row.module)
    found: BackendModule = module
    return found


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
