"""`legos play ENV`: a person in the terminal at one seat or several, any policy at the others."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_envs import Episode
from legos_train.cli import parse_assignments, parser
from legos_train.playing import Left, Table
from legos_train.policies import Cast


def run(arguments: Sequence[str]) -> int:
    p = parser(
        "play",
        "Play in the terminal. Answer with an action such as [bet], or with text; a line of text that ends with a\n"
        "backslash goes on in the next; ? tells what else can be typed, /undo takes back a typo. Ctrl-C leaves.\n\n"
        "You take the first trained seat, unless --seat puts you elsewhere (`--seat judge=human`).",
    )
    p.add_argument("env", nargs="?", default="KuhnPoker-v0")
    p.add_argument(
        "--seat",
        action="append",
        default=[],
        metavar="NAME=POLICY",
        help="who takes an agent's or role's seat (repeatable): human, random, optimal, scripted:NAME, a model, a run, "
        "an endpoint http://HOST:PORT/v1#MODEL",
    )
    p.add_argument("--opponent", default="random", help="who takes all other seats, judges too (default: random)")
    p.add_argument("--seed", type=int, help="deal this episode")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="constructor argument of the env")
    options = p.parse_args(arguments)
    if options.seed is not None and options.seed < 0:
        p.error(f"--seed must be at least 0, got {options.seed}")
    env: Any = legos_envs.make(options.env, **parse_assignments(options.arg, "--arg"))
    env.reset(seed=0)
    roles = {agent: info.get("role", agent) for agent, info in env.infos.items()}
    chosen = {str(k): str(v) for k, v in parse_assignments(options.seat, "--seat").items()}
    if unknown := set(chosen) - {*roles, *roles.values()}:
        known = sorted({*roles, *roles.values()})
        p.error(f"no agent or role {', '.join(sorted(unknown))}; {options.env} has {', '.join(known)}")
    who = {agent: chosen.get(agent) or chosen.get(role) for agent, role in roles.items()}
    if "human" not in who.values():
        free = [agent for agent, policy in who.items() if policy is None]
        trained = [agent for agent in free if env.infos[agent].get("trainable", True)]
        if not free:
            p.error("every seat is given to a policy, and none to you; leave one free or write NAME=human")
        who[(trained or free)[0]] = "human"
    return _run(env, {agent: policy or options.opponent for agent, policy in who.items()}, options)


def _run(env: Any, who: dict[str, str], options: Any) -> int:
    cast = Cast(env)
    try:
        players = {agent: None if policy == "human" else cast.player(policy) for agent, policy in who.items()}
        seed = secrets.randbits(31) if options.seed is None else options.seed
        table = Table(env, players, seed)
        people = [agent for agent, policy in who.items() if policy == "human"]
        others = ", ".join(f"{agent} is {policy}" for agent, policy in who.items() if policy != "human")
        print(f"You are {' and '.join(people)}{'; ' if others else ''}{others}. Type ? for help, /undo after a typo.\n")
        try:
            asyncio.run(_games(table, who))
        except EOFError:
            print("\nno more input: game left")
            return 1
        except Left:
            print("game left")
    finally:
        cast.close()
    return 0


async def _games(table: Table, who: dict[str, str]) -> None:
    """Plays, shows the result and, to somebody at a terminal, offers to take the last entry back even then."""
    while True:
        episode = await table.play()
        _show_result(table, episode, who)
        if not sys.stdin.isatty():
            return
        try:
            line = input("\nEnter leaves; undo takes back what you typed last> ")
        except EOFError:
            return
        if line.strip().casefold().removeprefix("/") != "undo" or not table.take_back():
            return


def _show_result(table: Table, episode: Episode, who: dict[str, str]) -> None:
    for agent in [agent for agent, policy in who.items() if policy == "human"]:
        messages = table.env.observe(agent)["messages"]
        if messages and messages[-1]["role"] == "user":  # what it was told after its last action
            print(f"\n{agent} is told: {messages[-1]['content']}")
    print()
    for agent, policy in who.items():
        print(f"{agent} ({policy}): {episode.returns[agent]:+g}")
    print(f"outcome: {episode.outcome or 'ended'} (seed {table.seed})")
