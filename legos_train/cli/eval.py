"""`legos eval ENV -m POLICY --opponent POLICY -n GAMES`: a policy in every seat, on paired seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from legos_train.cli.main import parser
from legos_train.evaluation import Journal, Setting, games, options, summary
from legos_train.evaluation.exact_part import ExactPart
from legos_train.evaluation.text import comparison_text, row_text
from legos_train.players import words

ITSELF = "self"


DESCRIPTION = f"""Measure policies, without training: every policy in every seat, on the same seeds.

{words.WORDS}"""
EXAMPLES = """
legos eval KuhnPoker-v0 -m tiny --opponent random --opponent optimal -n 200
legos eval KuhnPoker-v0 TicTacToe-v0 -m random -m scripted:first --opponent optimal --json
legos eval KuhnPoker-v0 -m runs/kuhn -m tiny --out evals/kuhn    # keeps every game; goes on where it stopped
legos eval KuhnPoker-v0 -m http://127.0.0.1:8000/v1#tiny         # a server with OpenAI's API
"""


def make_parser() -> argparse.ArgumentParser:
    p = parser("eval", DESCRIPTION, EXAMPLES)
    p.add_argument("env", nargs="+", metavar="ENV", help=options.ENVS)
    p.add_argument(
        "-m", "--policy", action="append", required=True, metavar="POLICY", help="who is measured (repeatable)"
    )
    p.add_argument(
        "--opponent",
        action="append",
        metavar="POLICY",
        help="who takes the other seats (repeatable); `self`: the policy itself (default: random)",
    )
    p.add_argument(
        "-n", "--games", type=int, default=256, metavar="N", help="games per policy and opponent (default: %(default)s)"
    )
    p.add_argument(
        "--samples",
        type=int,
        default=1,
        metavar="K",
        help="games per seed, for mean@K and pass@k (default: %(default)s)",
    )
    p.add_argument("--no-exact", dest="exact", action="store_false", help="games only; large games take models long")
    options.add_playing(p)
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    options.check(p, options)
    if options.samples < 1:
        p.error(f"--samples must be at least 1, got {options.samples}")
    setting = Setting(options)
    pairings = [
        setting.pairing(env, policy, policy if opponent == ITSELF else opponent)
        for env in setting.envs
        for policy in dict.fromkeys(options.policy)
        for opponent in opponents(setting, env, options.opponent)
    ]
    with Journal(options.out) as journal, setting.stage(journal) as stage:
        games = {one.key: list(one.games(options.games, options.seed, options.samples)) for one in pairings}
        failures = stage.play([game for some in games.values() for game in some])
        played = [(pairing, journal_of(journal, games[pairing.key])) for pairing in pairings]
        rows, exact = [], ExactPart(stage.player, lambda said: print(said, file=sys.stderr, flush=True))
        for pairing, records in played:
            failed = [failures[g.key] for g in games[pairing.key] if g.key in failures]
            zero_sum = setting.zero_sum(pairing.title)
            found = summary.row(
                pairing, records, options.seed, samples=options.samples, failed=failed, zero_sum=zero_sum
            )
            found["advice"] += setting.remarks(pairing)
            rows.append(found | (exact.of(pairing, setting.env(pairing.title).unwrapped) if options.exact else {}))
        compared = summary.comparisons(played, options.seed, options.samples)
        results = {"results": rows, "comparisons": compared, "setting": setting.facts()}
        journal.write_results(results)
    show(results, options.json)
    return 1 if failures else 0


def opponents(setting: Setting, env: str, given: Sequence[str] | None) -> list[str]:
    """The opponents of an env: none but `self` where there is one side only."""
    alone = len(setting.pairing(env, "random", "random").sides) == 1
    return [ITSELF] if alone else list(dict.fromkeys(given or ["random"]))


def journal_of(journal: Journal, games: Sequence[games.Game]) -> list[games.Record]:
    """The records of games that are there, in the order of the schedule."""
    return [journal.records[game.key] for game in games if game.key in journal.records]


def show(results: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(results))
        return
    shown = None  # a policy's own exact numbers are the same against everybody
    for one in results["results"]:
        for line in row_text(one, (one["env"], one["policy"]) != shown):
            print(line)
        shown = one["env"], one["policy"]
    for one in results["comparisons"]:
        for line in comparison_text(one):
            print(line)
