"""`legos envs check ID`, or `--all`: the conformance checks, and hostile actions with `--fuzz N`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import legos_envs
from legos_train.cli.arguments import ENV, Parser
from legos_train.config import parse_assignments

DESCRIPTION = """Run every conformance check on an environment, or on all of them.

It plays many random games and checks PettingZoo's rules, determinism by seed, pickling and more; a table shows
what failed, passed or was skipped. The exit code is 1 if any check failed."""
EXAMPLES = """
legos envs check KuhnPoker-v0 --fuzz 1000                  # with 1000 hostile actions
legos envs check examples/haggle.py:Haggle-v0              # one of your own
legos envs check --all --episodes 20                       # all of them, as a table
"""


def add_arguments(p: Parser) -> None:
    p.add_argument("env", nargs="?", metavar="ENV", help=ENV)
    p.add_argument("--all", action="store_true", help="every environment of the namespace legos, instead of ENV")
    p.number("--episodes", help="games of random play", default=200, least=1)
    p.number("--fuzz", help="also try N hostile actions", default=0)
    p.env_arguments()


def run(p: Parser, options: argparse.Namespace) -> int:
    if bool(options.env) == options.all:
        p.error("check takes an environment id, or --all")
    kwargs = parse_assignments(options.arg, "--arg")
    return _all(options, kwargs) if options.all else _one(options, kwargs)


def _one(options: argparse.Namespace, kwargs: dict[str, Any]) -> int:
    legos_envs.make(options.env, **kwargs).close()  # if it cannot be made, say so once
    report, thrown = _checked(options.env, options, kwargs)
    print(report)
    if thrown is not None:
        print(thrown)
    return 0 if report.ok and (thrown is None or thrown.ok) else 1


def _all(options: argparse.Namespace, kwargs: dict[str, Any]) -> int:
    ids = legos_envs.registered()
    width = max(map(len, ids))
    rows, failures = [], []
    for number, id in enumerate(ids, 1):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{number}/{len(ids)} {id}", end="", file=sys.stderr, flush=True)
        report, thrown = _checked(id, options, kwargs)
        ok = report.ok and (thrown is None or thrown.ok)
        speed = "-" if report.us_per_turn is None else f"{report.us_per_turn:.1f}"
        hostile = "-" if thrown is None else f"{len(thrown.failures)} of {thrown.hostile}"
        rows.append(
            f"{id:{width}}  {'ok' if ok else 'FAIL':4}  {len(report.failures):6}  {len(report.passed):6}  "
            f"{len(report.skipped):7}  {speed:>10}  {hostile:>14}"
        )
        failures += [f"{id}: {name}: {what}" for name, what in report.failures.items()]
        failures += [f"{id}: fuzz: {what}" for what in (thrown.failures if thrown else [])]
        if not sys.stderr.isatty():
            print(f"{number}/{len(ids)} {id}: {'ok' if ok else 'FAIL'}", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    head = f"{'environment':{width}}  {'':4}  {'failed':>6}  {'passed':>6}  {'skipped':>7}  {'us a turn':>10}"
    print("\n".join([f"{head}  {'hostile failed':>14}", *rows]))
    if failures:
        print("\n" + "\n".join(failures))
    bad = sum("  FAIL  " in row for row in rows)
    print(f"\n{len(ids)} environments, {bad} with failures")
    return 1 if bad else 0


def _checked(id: str, options: argparse.Namespace, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    from legos_envs.testing import Report, check_env, fuzz

    try:
        report = check_env(id, episodes=options.episodes, **kwargs)
        return report, fuzz(id, options.fuzz, **kwargs) if options.fuzz else None
    except Exception as error:
        if not options.all:
            raise
        return Report(id, failures={"make": f"{type(error).__name__}: {error}"}), None
