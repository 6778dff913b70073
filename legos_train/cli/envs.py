"""`legos envs list|show|check|new`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_envs.registry import catalogue, describe, known_ids
from legos_train.cli import envs_check, envs_new, envs_show
from legos_train.cli.arguments import Parser

DESCRIPTION = """List, show, check or create environments. See `legos envs COMMAND --help` for details.

Name an environment by its id from `legos envs list` (KuhnPoker-v0), or by the module or file that registers it:
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
legos envs list --json                   # for scripts; includes roles
legos envs list --namespace TextArena    # needs the extra `textarena`
"""
VERBS: dict[str, tuple[Any, str]] = {
    "show": (envs_show, "an environment's page, arguments, options, seats and a first observation"),
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
    if options.json:
        print(json.dumps([describe(id) for id in known_ids(options.namespace)], indent=2))
    else:
        print(catalogue(options.namespace))
    return 0
