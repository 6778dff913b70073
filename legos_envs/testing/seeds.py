"""The same seed gives the same episode, no matter what else is running."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from legos_envs.testing.harness import Record, Skipped, Subject, advance, check, drive, require, same, short, stepping

SEEDS = range(4)


@check("seed.fresh")
def fresh(s: Subject) -> None:
    """The same seed gives the same episode on a new env."""
    for seed in SEEDS:
        same(s.play(seed), s.plain(seed), f"seed {seed} on two new envs")


@check("seed.reused")
def reused(s: Subject) -> None:
    """The same seed gives the same episode on an env that was used before, even if it was left in mid-episode."""
    env = s.make()
    for seed in SEEDS:
        for left_after in (1, 2, 10**6):
            s.begin(seed + 100, env)
            advance(env, s.player(seed + 100), left_after)
            same(s.play(seed, env), s.plain(seed), f"seed {seed} on a used env")


@check("seed.interleaved")
def interleaved(s: Subject) -> None:
    """The same seed gives the same episode while another env of the same kind is stepped in between."""
    for seed in SEEDS:
        here, there = s.make(), s.make()
        here.reset(seed=seed)
        there.reset(seed=seed + 100)
        other = stepping(there, s.player(seed + 100))
        play = stepping(here, s.player(seed))
        while True:
            next(other, None)
            try:
                next(play)
            except StopIteration as stop:
                record: Record = stop.value
                break
        same(record, s.plain(seed), f"seed {seed} beside another env")


@check("seed.global_rng")
def global_rng(s: Subject) -> None:
    """The same seed gives the same episode whatever the state of the global random generators."""
    for seed in SEEDS:
        with _kept_global_rng():
            _disturb(seed)
            quiet = s.play(seed)
            _disturb(seed + 50)
            noisy = s.play(seed, each=lambda step: _disturb(len(step.agent)))
            same(noisy, quiet, f"seed {seed} with other states of `random` and `numpy.random`")


@check("rng.untouched")
def untouched(s: Subject) -> None:
    """Making and playing the env leaves the global random generators alone."""
    with _kept_global_rng():
        _disturb(1)
        before = _global_state()
        s.play(3)
        require(_global_state()[0] == before[0], "the state of Python's `random` changed; use table.rng")
        require(_global_state()[1] == before[1], "the state of `numpy.random` changed; use table.rng")


@check("seed.thread")
def thread(s: Subject) -> None:
    """The same seed gives the same episode in another thread."""
    with ThreadPoolExecutor(1) as pool:
        for seed in SEEDS:
            same(pool.submit(s.play, seed).result(), s.plain(seed), f"seed {seed} in a thread")


@check("seed.process")
def process(s: Subject) -> None:
    """The same seed gives the same episode in another process with another hash seed."""
    if not isinstance(s.target, str):
        raise Skipped("needs an environment id, to make the env in another process")
    if s.foreign:
        raise Skipped("needs the default policy, which the other process has too")
    try:
        request = json.dumps([s.target, s.kwargs])
    except TypeError:
        raise Skipped("the constructor arguments are not JSON") from None
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    code = "import sys; from legos_envs.testing.seeds import _digests_for; print(_digests_for(sys.argv[1]))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, request],
        env={**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if "UnknownEnv" in done.stderr:
        raise Skipped("the id is registered in this process only; name it 'module:Id-v0'")
    require(done.returncode == 0, f"the other process failed: {done.stderr.strip()[-300:]}")
    here, there = digests(s), json.loads(done.stdout)
    require(here == there, f"of seeds {list(SEEDS)}, {sum(a != b for a, b in zip(here, there))} differ there")


def _digests_for(request: str) -> str:
    target, kwargs = json.loads(request)
    return json.dumps(digests(Subject(target, kwargs, 0, None)))


def digests(s: Subject) -> list[str]:
    """A hash of the whole episode for each of a few seeds."""
    return [hashlib.sha256(json.dumps(s.play(seed).plain()).encode()).hexdigest() for seed in SEEDS]


@check("seed.stream")
def stream(s: Subject) -> None:
    """Resets without a seed continue from the last seed given, reproducibly, with new episodes."""
    streams = []
    for _ in range(2):
        env = s.make()
        env.reset(seed=11)
        streams.append([_unseeded(s, env) for _ in range(8)])
    for first, second in zip(*streams):
        same(second, first, "reset() without a seed, after the same seed")
    if not _differ(iter(streams[0])) and _differ(s.play(seed) for seed in range(8)) and _deals(s):
        raise AssertionError("eight resets without a seed gave one and the same episode")


def _unseeded(s: Subject, env: Any) -> Record:
    env.reset()
    return drive(env, s.player(0))


def _deals(s: Subject) -> bool:
    """Whether the env itself is random: with the same player's choices, do episodes differ by seed?"""
    return _differ(drive(s.begin(seed), s.player(0)) for seed in range(16))


def _differ(records: Iterator[Record]) -> bool:
    """Whether any two are different; stops at the first difference."""
    first = next(records).plain()
    return any(record.plain() != first for record in records)


@check("seed.refused")
def refused(s: Subject) -> None:
    """Seeds that are negative, float or bool are refused with ValueError or TypeError."""
    for bad in (-1, 1.5, True):
        env = s.make()
        try:
            env.reset(seed=bad)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            continue
        raise AssertionError(f"reset(seed={short(bad)}) was accepted")


def _disturb(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    random.random()
    np.random.random()


def _global_state() -> tuple[Any, str]:
    return random.getstate(), repr(
        [part if isinstance(part, str | int | float) else part.tolist() for part in np.random.get_state()]
    )  # type: ignore[union-attr]


@contextmanager
def _kept_global_rng() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
