"""Where the weights of a run live: as the config says, or in a backend that the caller brings."""

from __future__ import annotations

from collections.abc import Mapping

from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model import World, backends

GivenBackend = backends.Given | backends.Place
"""What a caller may bring: a backend that is played as the config says, or a place with engines of its own."""


def place_of(config: TrainConfig, world: World | None, backend: GivenBackend | None, run_id: str) -> backends.Place:
    """Sets up the place of the weights, ready for training.

    Args:
        config: settings of the run.
        world: all ranks, if there are several.
        backend: the user's; by default as `config.backend` says.
        run_id: part of the names of what is saved elsewhere.

    Raises:
        ConfigError: the place cannot be reached, cannot do what the config asks, or is not one of each learner.
    """
    if backend is None:
        return backends.named_by(config).place(config, world, run_id)
    own = backend.backend if isinstance(backend, backends.Place) else backend
    wanted = set(config.learners) if config.learner else set()
    given = set(own) if isinstance(own, Mapping) else set()
    if wanted != given:
        raise ConfigError(
            f"backend has the learners {sorted(given)}, the config {sorted(wanted)}; give one backend for each learner "
            "by name, or a single one where the config has no [[learner]]"
        )
    if not isinstance(backend, backends.Place):
        return backends.named_by(config).place(config, world, run_id, backend)
    _check_given(config, world, backend)
    return backend


def _check_given(config: TrainConfig, world: World | None, place: backends.Place) -> None:
    """Raises ConfigError for settings that a place with engines of its own cannot follow."""
    for one in place.backend.values() if isinstance(place.backend, Mapping) else [place.backend]:
        backends.check_capabilities(config, one.capabilities)
    if world is not None:
        raise ConfigError("a backend with engines of its own trains in a single process; start it without other ranks")
    if config.server.urls and place.base is None:
        raise ConfigError("server.urls needs adapters of a model here; this backend plays by itself: leave it out")
    if config.asynchronous.enabled and place.second is None:
        raise ConfigError(
            "asynchronous.enabled needs a second engine, which this backend does not have (`Place.second`): turn it off"
        )
