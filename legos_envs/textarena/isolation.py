"""Chance for guests: TextArena's modules see another `random`, so that the caller's generators are never touched.

Its games call the functions of the global `random` module, and reseed it at every `reset`. Here those modules get an
object in place of the module. While an episode is being played it answers with the methods of that episode's own
`random.Random`; at any other time, and for any name a generator has not, with those of the real module. So nothing
has to be saved and restored around a call (which costs 40 us), and other threads never see a borrowed state.
"""

from __future__ import annotations

import builtins
import importlib
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

PREFIX = "textarena."


class Chance:
    """All the randomness of one episode."""

    def __init__(self, seed: int):
        self.seed = seed
        self.python = random.Random(seed)

    @cached_property
    def numpy(self) -> np.random.RandomState:
        return np.random.RandomState(self.seed % 2**32)


class _Running(threading.local):
    chance: Chance | None = None


_running = _Running()
_lock = threading.RLock()


class _Random:
    """Stands where TextArena's modules have `random`."""

    def __getattr__(self, name: str) -> Any:
        chance = _running.chance
        own = None if chance is None else getattr(chance.python, name, None)
        return getattr(random, name) if own is None else own


class _NumpyRandom:
    """Stands where they have `numpy.random`."""

    def __getattr__(self, name: str) -> Any:
        chance = _running.chance
        own = None if chance is None else getattr(chance.numpy, name, None)
        return getattr(np.random, name) if own is None else own


class _Numpy:
    """Stands where they have `numpy`."""

    random = _NumpyRandom()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _print(*args: Any, **kwargs: Any) -> None:
    """Stands where they have `print`: silent while an episode is being played here."""
    if _running.chance is None:
        builtins.print(*args, **kwargs)


_STAND_INS: dict[str, tuple[Any, Any]] = {
    "random": (random, _Random()),
    "np": (np, _Numpy()),
    "numpy": (np, _Numpy()),
}


def load(module: str) -> None:
    """Imports a module of TextArena and gives the stand-ins to all of TextArena that is loaded by then."""
    if module in sys.modules and getattr(sys.modules[module], "print", None) is _print:
        return
    with _lock:
        importlib.import_module(module)
        for name, loaded in list(sys.modules.items()):
            if not name.startswith(PREFIX) or loaded is None:
                continue
            for alias, (real, stand_in) in _STAND_INS.items():
                if loaded.__dict__.get(alias) is real:
                    setattr(loaded, alias, stand_in)
            if name.startswith(f"{PREFIX}envs."):
                loaded.__dict__.setdefault("print", _print)


@contextmanager
def _lent(chance: Chance) -> Iterator[None]:
    with _lock:
        before, _running.chance = _running.chance, chance
        try:
            yield
        finally:
            _running.chance = before


def playing(chance: Chance) -> Any:
    """A context in which TextArena draws from this episode's chance. One thread at a time."""
    return _lent(chance)
