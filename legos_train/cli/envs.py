"""`legos envs list|show|check|new`."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_envs.registry import families, family_of
from legos_train.cli import envs_check, envs_new, envs_show
from legos_train.cli.arguments import Parser

DESCRIPTION = """List, show, check or create environments. `legos envs list --help` (and so on) has the details of each.

Name an environment by its id in `legos envs list` (KuhnPoker-v0), or by where its class is registered:
`module:Name-v0` or `file.py:Name-v0`."""
EXAMPLES = """
legos envs list
legos envs show KuhnPoker-v0
legos envs check KuhnPoker-v0 --fuzz 1000
legos envs new MyGame
"""
LIST = """List the registered environments by family, each with its number of seats and a one-line description."""
LIST_EXAMPLES = """
legos envs list
legos envs list --json                   # with roles, for scripts
legos envs list --namespace TextArena    # needs the extra `textarena`
"""
VERBS: dict[str, tuple[Any, str]] = {
    "show": (envs_show, "its page, arguments, options, seats and a first observation"),
    "check": (envs_check, "run every conformance check"),
    "new": (envs_new, "write a working environment and its test, to start from"),
}


def make_parser() -> Parser:
    p = Parser("envs", DESCRIPTION, EXAMPLES)
    verbs = p.add_subparsers(dest="verb", required=True, metavar="{list,show,check,new}")
    listing = verbs.add_parser("list", help="all registered environments", description=LIST, examples=LIST_EXAMPLES)
    listing.value(
        "--namespace",
        default=legos_envs.registry.NAMESPACE,
        metavar="NAME",
        help="namespace to list; TextArena's games need the extra `textarena`",
    )
    listing.add_argument("--json", action="store_true", help="print a JSON list instead of text")
    for name, (module, help) in VERBS.items():
        inner = verbs.add_parser(name, help=help, description=module.DESCRIPTION, examples=module.EXAMPLES)
        module.add_arguments(inner)
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    if options.verb == "list":
        return _list(options)
    code: int = VERBS[options.verb][0].run(p, options)
    return code


def _list(options: argparse.Namespace) -> int:
    ids = known_ids(options.namespace)
    rows = [
        facts(id) if options.namespace == legos_envs.registry.NAMESPACE else {"id": id, "family": None} for id in ids
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max(map(len, ids), default=0)
    family: str | None = ""
    for row in sorted(rows, key=lambda row: _place(row["family"])):
        if row["family"] != family and options.namespace == legos_envs.registry.NAMESPACE:
            print(f"{'' if family == '' else chr(10)}{row['family'] or 'others'}")
            family = row["family"]
        count = len(row.get("seats") or ())
        seats = f"{count:4} seat{'s' if count > 1 else ' '}" if count else ""
        print(f"{row['id']:{width}}{seats}  {row.get('about', '')}".rstrip())
    if not rows:
        print(f"nothing is registered under the namespace {options.namespace!r}")
    return 0


def _place(family: str | None) -> int:
    return list(families()).index(family) if family else len(families())


def known_ids(namespace: str) -> list[str]:
    """The ids of a namespace, as `legos_envs.make` takes them."""
    short = legos_envs.registered(namespace)
    return short if namespace == legos_envs.registry.NAMESPACE else [f"{namespace}/{id}" for id in short]


def facts(id: str) -> dict[str, Any]:
    """What the list says of an environment. One that lacks an extra is listed with what it needs."""
    try:
        env: Any = legos_envs.make(id)
    except Exception as error:
        if not isinstance(error.__cause__ or error, ImportError):
            raise
        about = f"cannot be made here: {error}"
        return {"id": id, "family": family_of(id), "seats": {}, "zero_sum": None, "memory": None, "about": about}
    return {
        "id": id,
        "family": family_of(id),
        "seats": {agent: seat.role for agent, seat in getattr(env, "seats", {}).items()},
        "zero_sum": getattr(env, "zero_sum", None),
        "memory": getattr(env, "memory", None),
        "about": (inspect.getdoc(type(env)) or "").partition("\n")[0],
    }
