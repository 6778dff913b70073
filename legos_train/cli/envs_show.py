"""`legos envs show ID`: the page of an environment, its arguments, options and seats, and a first observation."""

from __future__ import annotations

import argparse
import inspect
import sys
from typing import Any

import legos_envs
from legos_envs.testing import constructor_arguments, page
from legos_train.cli.arguments import ENV, Parser
from legos_train.config import parse_assignments

DESCRIPTION = """Show an environment: its page, arguments, options, seats and a first observation.

Arguments are listed with their defaults, as --arg takes them here and in `train`, `eval` and `play`; seats with
their roles, as --seat names them."""
EXAMPLES = """
legos envs show Debate-v0
legos envs show KuhnPoker-v0 --arg num_rounds=3            # the first observation changes with the arguments
legos envs show examples/haggle.py:Haggle-v0               # your own environment
"""


def add_arguments(p: Parser) -> None:
    p.add_argument("env", metavar="ENV", help=ENV)
    p.env_arguments()


def run(_: Parser, options: argparse.Namespace) -> int:
    env: Any = legos_envs.make(options.env, **parse_assignments(options.arg, "--arg"))
    bare = env.unwrapped
    text = page(options.env).text or inspect.getdoc(type(bare)) or ""
    if env is not bare:
        text = f"In {type(env).__name__}, which may change rewards and players. The env inside:\n\n{text}"
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(f"# {options.env}\n\n{text}"))
    else:
        print(f"{options.env}\n\n{text}")
    print("\nconstructor arguments:")
    for parameter in constructor_arguments(type(bare)):
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        print(f"  {parameter.name}{default}")
    print("\nreset options:")
    for name, about in getattr(bare, "reset_options", {}).items() or [("none", "")]:
        print(f"  {name}  {about}".rstrip())
    env.reset(seed=0)
    print("\nseats:")
    for agent, info in env.infos.items():
        print(f"  {agent}: role {info.get('role', agent)}{'' if info.get('trainable', True) else ', not trained'}")
    agent = env.agent_selection
    print(f"\nfirst observation of {agent}, seed 0:")
    for message in env.observe(agent)["messages"]:
        print(f"  {message['role']}: " + message["content"].replace("\n", "\n        "))
    return 0
