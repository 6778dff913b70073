"""Randomness for guests: TextArena's modules see another `random`, so that the caller's generators are never touched.

Its games call the functions of the global `random` module, and reseed it at every `reset`. Here those modules get a
stand-in object instead. While an episode is being played, it resolves to the methods of that episode's own
`random.Random`; at any other time, and for any name that a generator lacks, to the real module. So nothing has to be
saved and restored around a call (which costs 40 us), and other threads never see a borrowed state.
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
    """Replaces `random` in TextArena's modules."""

    def __getattr__(self, name: str) -> Any:
        chance = _running.chance
        own = None if chance is None else getattr(chance.python, name, None)
        return getattr(random, name) if own is None else own


class _NumpyRandom:
    """Replaces `numpy.random` there."""

    def __getattr__(self, name: str) -> Any:
        chance = _running.chance
        own = None if chance is None else getattr(chance.numpy, name, None)
        return getattr(np.random, name) if own is None else own


class _Numpy:
    """Replaces `numpy` there."""

    random = _NumpyRandom()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _print(*args: Any, **kwargs: Any) -> None:
    """Replaces `print` there: silent while an episode is being played here."""
    if _running.chance is None:
        builtins.print(*args, **kwargs)


_STAND_INS: dict[str, tuple[Any, Any]] = {
    "random": (random, _Random()),
    "np": (np, _Numpy()),
    "numpy": (np, _Numpy()),
}


def imported(module: str) -> None:
    """Imports a module. The first import of TextArena draws from the global generators: they are put back."""
    if sys.modules.get(module) is not None:
        return
    python, numpy = random.getstate(), np.random.get_state()
    try:
        importlib.import_module(module)
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def load(module: str) -> None:
    """Imports a module of TextArena and installs the stand-ins in all of its modules loaded so far."""
    if module in sys.modules and getattr(sys.modules[module], "print", None) is _print:
        return
    with _lock:
        imported(module)
        for name, loaded in list(sys.modules.items()):
            if not name.startswith(PREFIX) or loaded is None:
                continue
            for alias, (real, stand_in) in _STAND_INS.items():
                if loaded.__dict__.get(alias) is real:
                    setattr(loaded, alias, stand_in)
            if name.startswith(f"{PREFIX}envs."):
                loaded.__dict__.setdefault("print", _print)


@contextmanager
def playing(chance: Chance) -> Iterator[None]:
    """A context in which TextArena uses this episode's randomness. One thread at a time."""
    with _lock:
        before, _running.chance = _running.chance, chance
        try:
            yield
        finally:
            _running.chance = before
