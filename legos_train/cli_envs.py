"""`legos envs list|show|check`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_train.cli import parse_assignments, parser


def run(arguments: Sequence[str]) -> int:
    p = parser("envs", "List, show or check environments.")
    verbs = p.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="all registered environments")
    listing.add_argument("--json", action="store_true")
    show = verbs.add_parser("show", help="seats, options and a first observation")
    check = verbs.add_parser("check", help="run every conformance check")
    check.add_argument("--episodes", type=int, default=200, help="games of random play (default 200)")
    for verb in (show, check):
        verb.add_argument("env", help="an id, module:Name-v0 or file.py:Name-v0")
        verb.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="constructor argument")
    options = p.parse_args(arguments)
    if options.verb == "list":
        return _list(options.json)
    kwargs = parse_assignments(options.arg, "--arg")
    return _show(options.env, kwargs) if options.verb == "show" else _check(options.env, kwargs, options.episodes)


def _facts(id: str) -> dict[str, Any]:
    env: Any = legos_envs.make(id)
    first = (inspect.getdoc(type(env)) or "").partition("\n")[0]
    return {
        "id": id,
        "seats": {agent: seat.role for agent, seat in env.seats.items()},
        "zero_sum": env.zero_sum,
        "memory": env.memory,
        "about": first,
    }


def _list(as_json: bool) -> int:
    rows = [_facts(id) for id in legos_envs.registered()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['id']:18} {len(row['seats'])} seats  {row['about']}")
    return 0


def _show(id: str, kwargs: dict[str, Any]) -> int:
    env: Any = legos_envs.make(id, **kwargs)
    print(f"{id}\n\n{inspect.getdoc(type(env))}\n")
    print("constructor arguments:")
    for cls in type(env).__mro__:
        if "__init__" in vars(cls) and issubclass(cls, legos_envs.TextEnv):
            for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
                if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                    print(f"  {parameter.name} = {parameter.default!r}")
    print("\nreset options:")
    for name, about in (env.reset_options or {"none": ""}).items():
        print(f"  {name}  {about}")
    print("\nseats:")
    for agent, seat in env.seats.items():
        print(f"  {agent}: role {seat.role}{'' if seat.trainable else ', not trained'}")
    env.reset(seed=0)
    agent = env.agent_selection
    print(f"\nfirst observation of {agent}, seed 0:")
    for message in env.observe(agent)["messages"]:
        print(f"  {message['role']}: " + message["content"].replace("\n", "\n        "))
    return 0


def _check(id: str, kwargs: dict[str, Any], episodes: int) -> int:
    from legos_envs.testing import check_env

    report = check_env(id, episodes=episodes, **kwargs)
    print(report)
    return 0 if report.ok else 1
