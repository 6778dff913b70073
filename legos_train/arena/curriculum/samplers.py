"""Task samplers: they choose what an episode is about and pass it to `reset` as options.

    proposed.py   problems that a proposer wrote are given to solvers again
    items.py      items of a data set, or passages of a corpus, by how much can be learned from them

`make_sampler` chooses by `curriculum.sampler`. Whatever a sampler keeps is in an `ArtifactStore`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from legos_train.arena.artifact_store import ArtifactStore
from legos_train.arena.request import TaskSampler
from legos_train.config import sections
from legos_train.errors import ConfigError

if TYPE_CHECKING:
    from legos_train.arena.arena import Arena

STORE = "curriculum"
"""The arena's name for the store of the run's sampler."""


Maker = Callable[[sections.CurriculumSettings, ArtifactStore, "Arena"], TaskSampler]


def make_sampler(settings: sections.CurriculumSettings, arena: Arena) -> TaskSampler:
    """The task sampler that `settings.sampler` names, over the arena's store `curriculum`, which is created if missing.

    `module:function` is called with the settings, the store and the arena and returns a `TaskSampler`.

    Raises:
        ConfigError: the sampler cannot be imported, or no environment of the arena suits the sampler.
    """
    name = settings.sampler or ""
    make = _imported(name)
    fresh = STORE not in arena.stores
    store = ArtifactStore(capacity=settings.capacity) if fresh else arena.stores[STORE]
    try:
        sampler = make(settings, store, arena)
    except ValueError as error:
        if fresh:
            store.close()
        raise ConfigError(f"curriculum.sampler {name!r}: {error}") from error
    if lacking := [
        part for part in ("prepare", "learn", "state_dict", "load_state_dict") if not hasattr(sampler, part)
    ]:
        raise ConfigError(f"curriculum.sampler {name!r} made {type(sampler).__name__}, which has no {lacking[0]}()")
    if fresh:
        arena.add_store(STORE, store)
    return sampler


def _imported(name: str) -> Maker:
    module, _, attribute = (sections.SAMPLER_ROWS[name].place if name in sections.SAMPLER_ROWS else name).partition(":")
    accepted = f"{', '.join(sections.SAMPLER_ROWS)} and module:function"
    try:
        made = attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"curriculum.sampler {name!r} cannot be imported: {error}; accepted: {accepted}") from error
    if not callable(made):
        raise ConfigError(f"curriculum.sampler {name!r} is {type(made).__name__}; it must be a function")
    return cast(Maker, made)


SAMPLERS: dict[str, Maker] = {name: _imported(name) for name in sections.SAMPLER_ROWS}
"""The makers of the samplers that have a name: the rows of the table in the config, imported."""
