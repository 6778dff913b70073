"""`legos envs check ID`, or `--all`: conformance, degenerate players, and hostile actions with `--fuzz N`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import legos_envs
from legos_train.cli.arguments import ENV, Parser
from legos_train.config import parse_assignments

if TYPE_CHECKING:
    from legos_envs.testing import FuzzReport, Panel, Report

DESCRIPTION = """Run every conformance check on an environment, or on all of them.

It plays many random games and checks PettingZoo's rules, determinism by seed, pickling and more; a table shows
what failed, passed or was skipped. Then degenerate players (a constant answer, an echo of the prompt, instructions to
the judge and others) try to earn more than the floor, the most that the environment's page allows them; if it states
none, a table shows what they earn. The exit code is 1 if a check failed or a floor was exceeded."""
EXAMPLES = """
legos envs check KuhnPoker-v0 --fuzz 1000                  # with 1000 hostile actions
legos envs check examples/haggle.py:Haggle-v0              # your own environment
legos envs check --all --episodes 20                       # all environments, as a table
"""


def add_arguments(p: Parser) -> None:
    p.add_argument("env", nargs="?", metavar="ENV", help=ENV)
    p.add_argument("--all", action="store_true", help="check every environment of the namespace legos, instead of ENV")
    p.number("--episodes", help="number of random games", default=200, least=1)
    p.number("--degenerate", help="number of games for each degenerate player", default=20)
    p.number("--fuzz", help="also try N hostile actions", default=0)
    p.env_arguments()


def run(p: Parser, options: argparse.Namespace) -> int:
    if bool(options.env) == options.all:
        p.error("check takes an environment id, or --all")
    kwargs = parse_assignments(options.arg, "--arg")
    return _all(options, kwargs) if options.all else _one(options, kwargs)


def _one(options: argparse.Namespace, kwargs: dict[str, Any]) -> int:
    legos_envs.make(options.env, **kwargs).close()  # if it cannot be constructed, say so once
    results = _checked(options.env, options, kwargs)
    print("\n".join(str(result) for result in results if result is not None))
    return 0 if _ok(results) else 1


def _all(options: argparse.Namespace, kwargs: dict[str, Any]) -> int:
    ids = legos_envs.registered()
    width = max(map(len, ids))
    rows, failures = [], []
    for number, id in enumerate(ids, 1):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{number}/{len(ids)} {id}", end="", file=sys.stderr, flush=True)
        report, panel, thrown = results = _checked(id, options, kwargs)
        ok = _ok(results)
        speed = "-" if report.us_per_turn is None else f"{report.us_per_turn:.1f}"
        gamed = "-" if panel is None else "no floor" if not panel.declared else f"{len(panel.failures)}"
        hostile = "-" if thrown is None else f"{len(thrown.failures)} of {thrown.hostile}"
        rows.append(
            f"{id:{width}}  {'ok' if ok else 'FAIL':4}  {len(report.failures):6}  {len(report.passed):6}  "
            f"{len(report.skipped):7}  {speed:>10}  {gamed:>11}  {hostile:>14}"
        )
        failures += [f"{id}: {name}: {what}" for name, what in report.failures.items()]
        failures += [f"{id}: degenerate: {what}" for what in (panel.failures if panel and not panel.ok else [])]
        failures += [f"{id}: fuzz: {what}" for what in (thrown.failures if thrown else [])]
        if not sys.stderr.isatty():
            print(f"{number}/{len(ids)} {id}: {'ok' if ok else 'FAIL'}", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    head = f"{'environment':{width}}  {'':4}  {'failed':>6}  {'passed':>6}  {'skipped':>7}  {'us a turn':>10}"
    print("\n".join([f"{head}  {'above floor':>11}  {'hostile failed':>14}", *rows]))
    if failures:
        print("\n" + "\n".join(failures))
    bad = sum("  FAIL  " in row for row in rows)
    print(f"\n{len(ids)} environments, {bad} with failures")
    return 1 if bad else 0


def _checked(
    id: str, options: argparse.Namespace, kwargs: dict[str, Any]
) -> tuple[Report, Panel | None, FuzzReport | None]:
    """Results of the checks, the degenerate players and the fuzzer; the latter two run only if the checks pass."""
    from legos_envs.testing import Report, attack, check_env, fuzz

    try:
        report = check_env(id, episodes=options.episodes, **kwargs)
        panel = attack(id, episodes=options.degenerate, **kwargs) if options.degenerate and report.ok else None
        return report, panel, fuzz(id, options.fuzz, **kwargs) if options.fuzz else None
    except Exception as error:
        if not options.all:
            raise
        return Report(id, failures={"make": f"{type(error).__name__}: {error}"}), None, None


def _ok(results: tuple[Report, Panel | None, FuzzReport | None]) -> bool:
    return all(result is None or result.ok for result in results)
