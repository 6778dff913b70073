"""`legos eval ENV -m POLICY --opponent POLICY -n GAMES`: a policy in every seat, on paired seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from legos_train.cli.arguments import Parser
from legos_train.cli.eval_text import comparison_text, ending, row_text
from legos_train.cli.playing_flags import add_playing, chosen, env_names
from legos_train.evaluation import Session, SessionOptions
from legos_train.observe import plain_text
from legos_train.rollout.players import words

DESCRIPTION = f"""Evaluate policies without training: every policy in every seat, on the same seeds.

{words.policy_help()}"""
EXAMPLES = """
legos eval KuhnPoker-v0 -m tiny --opponent random --opponent optimal -n 200
legos eval KuhnPoker-v0 TicTacToe-v0 -m random -m scripted:first --opponent optimal --json
legos eval KuhnPoker-v0 -m runs/kuhn -m tiny --out evals/kuhn    # saves every game; rerun to resume
legos eval KuhnPoker-v0 -m http://127.0.0.1:8000/v1#tiny         # a server with OpenAI's API
"""


def make_parser() -> Parser:
    p = Parser("eval", DESCRIPTION, EXAMPLES)
    env_names(p, "+")
    p.add_argument(
        "-m", "--policy", action="append", required=True, metavar="POLICY", help="the policy to evaluate (repeatable)"
    )
    p.add_argument(
        "--opponent",
        action="append",
        metavar="POLICY",
        help="who plays the other seats (repeatable); `self`: the policy itself (default: random)",
    )
    p.option(SessionOptions, "games", "-n")
    p.option(SessionOptions, "samples")
    p.add_argument(
        "--no-exact", dest="exact", action="store_false", help="skip the exact numbers, which are slow in large games"
    )
    add_playing(p)
    return p


def run(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    session = Session(chosen(SessionOptions, options))
    results, failed = session.evaluate(options.policy, options.opponent or ["random"], exact=options.exact)
    show(results, options.json)
    if not options.json:
        for line in ending(results, session.samples_played, options.out):
            print(plain_text.clean(line))
    return 1 if failed else 0


def show(results: Mapping[str, Any], as_json: bool) -> None:
    """Prints what `Session.evaluate` returns."""
    if as_json:
        print(json.dumps(results))
        return
    previous = None  # a policy's own exact numbers are the same against all opponents
    for row in results["results"]:
        for line in row_text(row, (row["env"], row["policy"]) != previous):
            print(line)
        previous = row["env"], row["policy"]
    for comparison in results["comparisons"]:
        for line in comparison_text(comparison):
            print(line)
