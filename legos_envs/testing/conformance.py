"""`check_env`: checks an environment against every rule that this project's environments must obey.

    print(check_env("KuhnPoker-v0"))

PettingZoo's own tests are run too, but they are weak for text: an env may pass them all while one seat reads another's
thoughts. Foreign AEC envs can be checked as well; missing features are reported as failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from pettingzoo import AECEnv

from legos_envs import arguments
from legos_envs.play import Decision
from legos_envs.testing import official, playing, privacy, robust, seeds
from legos_envs.testing.harness import CHECKS, LIMIT, Skipped, Subject, cut

MODULES = (official, playing, seeds, privacy, robust)
"""Imported for their checks, which run in this order."""


@dataclass
class Report:
    """The results of the checks. `str()` is a table."""

    name: str
    failures: dict[str, str] = field(default_factory=dict)
    """Failed checks, with their messages."""
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Checks that do not apply, with the reason."""
    us_per_turn: float | None = None
    """Processor time per action in microseconds, including resets and observations; None if it cannot be played."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def __str__(self) -> str:
        def line(name: str) -> str:
            if name in self.failures:
                return f"  FAIL  {name:<18}  {self.failures[name]}"
            if name in self.skipped:
                return f"  skip  {name:<18}  {self.skipped[name]}"
            return f"  ok    {name:<18}  {CHECKS[name].description}"

        ran = [name for name in CHECKS if name in {*self.failures, *self.skipped, *self.passed}]
        speed = "" if self.us_per_turn is None else f", {self.us_per_turn:.1f} us a turn"
        total = f"{len(self.failures)} failed, {len(self.passed)} passed, {len(self.skipped)} do not apply{speed}"
        return "\n".join([f"{self.name}: {total}", *map(line, ran)])


def check_env(
    env: str | Callable[..., AECEnv],
    *,
    episodes: int = 200,
    policy: Callable[[Decision], str] | None = None,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    raise_on_failure: bool = False,
    **kwargs: Any,
) -> Report:
    """Runs the checks on an environment.

    Args:
        env: an id that `legos_envs.make` takes, or a class or function that creates the env.
        episodes: number of self-play episodes to examine.
        policy: plays all seats, synchronously, as a function of the `Decision` alone. By default the env's scripted
            player `random`, else a random legal action, or a line of text if none is listed.
        only: names of the checks to run; all if empty.
        skip: names of checks to skip.
        raise_on_failure: raise an error instead of returning a report with failures.
        **kwargs: constructor arguments of the env.

    Raises:
        AssertionError: with `raise_on_failure`, when a check fails; the message lists all failures.
        ValueError: a name in `only` or `skip` is not a check, or there is no episode to examine.
    """
    episodes = arguments.whole("episodes", episodes, 1)
    unknown = ({*only} | {*skip}) - set(CHECKS)
    if unknown:
        raise ValueError(f"no checks are called {sorted(unknown)}; they are {list(CHECKS)}")
    subject = Subject(env, kwargs, episodes, policy)
    report = Report(env if isinstance(env, str) else getattr(env, "__name__", repr(env)))
    for check in CHECKS.values():
        if check.name in skip or (only and check.name not in only):
            continue
        try:
            check.run(subject)
        except Skipped as reason:
            report.skipped[check.name] = str(reason)
        except Exception as error:
            known = type(error) is AssertionError
            report.failures[check.name] = cut(f"{error}" if known else f"{type(error).__name__}: {error}", 600)
        else:
            report.passed.append(check.name)
    report.us_per_turn = _us_per_turn(subject)
    if raise_on_failure and report.failures:
        raise AssertionError(str(report))
    return report


def _us_per_turn(s: Subject) -> float | None:
    """The best of three rounds of about 4 ms each: a plain AEC loop that takes the first legal action."""
    best = None
    try:
        env, player = s.make(), s.player(0)
        for _ in range(3):
            turns, seed, start = 0, 0, time.process_time()
            while time.process_time() - start < 0.004 or turns == 0:
                env.reset(seed=seed)
                seed += 1
                for agent in env.agent_iter(LIMIT):
                    observation, _, terminated, truncated, info = env.last()
                    if terminated or truncated:
                        env.step(None)
                        continue
                    turns += 1
                    legal = info.get("legal_actions")
                    env.step(legal[0] if legal else player(env, agent, observation, info))
            spent = (time.process_time() - start) * 1e6 / turns
            best = spent if best is None else min(best, spent)
    except Exception:
        return None  # the checks have reported why
    return best
