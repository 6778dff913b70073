"""Players that write garbage, envs copied in mid-episode, agents that answer in a different order."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from pettingzoo import AECEnv

from legos_envs.play import Decision, ready_agents
from legos_envs.testing.harness import Subject, advance, check, drive, require, same, short

GARBAGE = (
    "",
    "x" * 65536,
    "語" * 65537,
    "[\x00]\x00",
    "\u202e[gnorw]\u202c",
    "\ud800 [\udfff]",
    "[" * 16000,
    "]" * 16000 + "[" * 16000,
    " " * 30000 + "[",
    "\\boxed{" * 4000,
    "{" * 16000,
    "[" + "9" * 5000 + "]",
    "9" * 5000,
    "[-1e999] [NaN] [0x10] [٣]",
    "<think>" * 5000 + "</think>" * 5000,
    "None",
)
"""Texts that a language model, or an attacker of the env, may write."""
SLOW_MS = 50.0


def wrong_format(env: AECEnv, agent: str) -> tuple[str, ...]:
    """The agent's first legal action in formats that the env did not ask for; empty if none is listed."""
    legal = env.infos[agent].get("legal_actions")
    if not legal:
        return ()
    name = legal[0].removeprefix("\\boxed{").strip("[]{}")
    return (f"\\boxed{{{name}}}" if legal[0].startswith("[") else f"[{name}]", f"({name})", f"[[{name}", f"{name}]")


def _throw_garbage(s: Subject, at_step: Callable[[AECEnv, str, str], None]) -> None:
    """Brings one seat of every role to its first turn, for every piece of garbage."""
    env, probe = s.make(), s.begin(0)
    for agent in s.one_seat_a_role:
        if not s.until(agent, s.begin(0, probe), s.player(0)):
            continue
        for text in GARBAGE + wrong_format(probe, agent):
            player = s.player(0)
            s.until(agent, s.begin(0, env), player)
            at_step(env, agent, text)


@check("garbage.safe")
def safe(s: Subject) -> None:
    """No text makes step() raise, then or later in the episode."""

    def throw(env: AECEnv, agent: str, text: str) -> None:
        try:
            env.step(text)
            drive(env, s.player(0))
        except Exception as error:
            raise AssertionError(f"{short(text, 60)} of {agent!r} raised {type(error).__name__}: {error}") from error

    _throw_garbage(s, throw)


@check("garbage.fast")
def fast(s: Subject) -> None:
    """Any text of 64 KiB is stepped and observed within 50 ms of processor time."""

    def throw(env: AECEnv, agent: str, text: str) -> None:
        best = _milliseconds(env, text)
        for _ in range(3):
            if best <= SLOW_MS:
                return
            s.until(agent, s.begin(0, env), s.player(0))
            best = min(best, _milliseconds(env, text))
        require(best <= SLOW_MS, f"{short(text, 60)} of {agent!r} took {best:.0f} ms")

    _throw_garbage(s, throw)


def _milliseconds(env: AECEnv, text: str) -> float:
    start = time.process_time()
    with suppress(Exception):  # "garbage.safe" reports these
        env.step(text)
        env.last()
    return (time.process_time() - start) * 1e3


@check("garbage.ends")
def garbage_ends(s: Subject) -> None:
    """A player that only writes garbage ends the episode sooner or later."""
    for agent in s.one_seat_a_role:
        for text in ("", "[" * 100, "I will not play."):
            player = s.player(0)
            play = player.policy

            def talk(decision: Decision, agent: str = agent, text: str = text, play: Any = play) -> Any:
                return text if decision.agent == agent else play(decision)

            player.policy = talk
            try:
                record = drive(s.begin(0), player)
            except Exception as error:
                raise AssertionError(f"{agent!r} says only {short(text, 40)}: {error}") from error
            require(
                len(set(record.endings.values())) == 1,
                f"{agent!r} says only {short(text, 40)}: the episode ended as {record.endings}",
            )


def _copied(s: Subject, how: str, copied: Callable[[AECEnv], AECEnv], *, dead: bool) -> None:
    for seed in range(2):
        length, agents = len(s.plain(seed).steps), len(s.plain(seed).endings)
        cuts = {0, 1, length // 2, length - 1} | ({length, length + 1, length + agents} if dead else set())
        for cut in sorted(cuts):
            env, player = s.begin(seed), s.player(seed)
            advance(env, player, cut)
            try:
                twin = copied(env)
            except Exception as error:
                raise AssertionError(
                    f"{how} failed after {cut} steps: {type(error).__name__}: {short(str(error))}"
                ) from error
            rest = drive(twin, player.copy())
            same(rest, drive(env, player), f"{how} after {cut} steps of seed {seed}")
    env = s.make()
    copied_before_reset = copied(env) if dead else None
    if copied_before_reset is not None:
        same(s.play(1, copied_before_reset), s.plain(1), f"{how} before the first reset")


@check("copy.pickle")
def pickled(s: Subject) -> None:
    """A pickled env continues exactly where it was, even in mid-episode."""
    _copied(s, "pickling", lambda env: pickle.loads(pickle.dumps(env)), dead=True)  # noqa: S301


@check("copy.deepcopy")
def deepcopied(s: Subject) -> None:
    """A deep copy continues exactly where the env was, and stepping one does not affect the other."""
    _copied(s, "deepcopy", copy.deepcopy, dead=True)


@check("copy.restore")
def restored(s: Subject) -> None:
    """`restore(state())` on another env continues exactly where the first was; the state is JSON."""
    env = s.make()
    require(hasattr(env, "restore"), "the env has no `restore`")

    def through_json(env: AECEnv) -> AECEnv:
        other = s.begin(99)
        advance(other, s.player(99), 1)
        other.restore(json.loads(json.dumps(env.state())))  # type: ignore[attr-defined]
        return other

    _copied(s, "restore(state())", through_json, dead=False)


@check("order.ready")
def order(s: Subject) -> None:
    """Stepping the ready agents in any order gives the same transcripts, returns and final infos."""
    env = s.begin(0)
    require(hasattr(env, "ready_agents") and hasattr(env, "select"), "the env has no `ready_agents` and `select`")
    for seed in range(4):
        env = s.begin(seed)
        if env.agents and not env.terminations[env.agent_selection]:
            ready = ready_agents(env)
            require(env.agent_selection in ready, f"agent_selection {env.agent_selection!r} is not among {ready}")
        plain = s.plain(seed)
        for shuffle in range(3 if plain.choices else 0):
            other = s.play(seed, order=Random(100 * seed + shuffle))
            if plain.truncated or other.truncated:
                break  # the actions before the turn limit do depend on the order
            how = f"seed {seed}, ready agents in another order"
            a, b = other.by_agent(), plain.by_agent()
            for agent in b:
                require(a[agent] == b[agent], f"{how}: {agent!r} has another transcript: {_first(a[agent], b[agent])}")
            for agent, value in plain.returns.items():
                require(abs(value - other.returns[agent]) < 1e-9, f"{how}: {other.returns} and {plain.returns}")
            require(
                {x: info for x, (_, info) in other.last.items()} == {x: info for x, (_, info) in plain.last.items()},
                f"{how}: the final infos differ",
            )


def _first(a: list[Any], b: list[Any]) -> str:
    x, y = next(((x, y) for x, y in zip(a, b) if x != y), (len(a), len(b)))
    return f"{short(x)} / {short(y)}"
