"""`legos tournament ENV ... -m A -m B -m C`: all pairs, payoff matrix, meta-Nash and ratings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from legos_train.cli.eval import journal_of
from legos_train.cli.main import parser
from legos_train.evaluation import Journal, Setting, crossplay, games, leaderboard, options, summary
from legos_train.players import words

DESCRIPTION = f"""Let every policy meet every other in every env, in all seats, on the same seeds.

It prints ratings with intervals, the payoff of every pair, and the mixture that no policy beats (meta-Nash).
Without envs and policies it shows the leaderboard, a file in which the games of all tournaments add up.

{words.WORDS}"""
EXAMPLES = """
legos tournament KuhnPoker-v0 Nim-v0 -m tiny -m random -m optimal
legos tournament KuhnPoker-v0 TicTacToe-v0 -m random -m optimal -n 20 --leaderboard board.sqlite
legos tournament KuhnPoker-v0 -m runs/a -m runs/b -m tiny --out cups/ab    # goes on where it stopped
legos tournament                                                           # the leaderboard
"""


def make_parser() -> argparse.ArgumentParser:
    p = parser("tournament", DESCRIPTION, EXAMPLES)
    p.add_argument("env", nargs="*", metavar="ENV", help=options.ENVS)
    p.add_argument(
        "-m", "--policy", action="append", default=[], metavar="POLICY", help="who plays; at least two (repeatable)"
    )
    p.add_argument(
        "-n", "--games", type=int, default=128, metavar="N", help="games per pair and env (default: %(default)s)"
    )
    p.add_argument(
        "--leaderboard",
        type=Path,
        metavar="FILE",
        help="where games and ratings persist, made if missing (default: leaderboard.sqlite in LEGOS_DATA, else in the "
        "user's data directory)",
    )
    p.add_argument("--no-leaderboard", action="store_true", help="count these games nowhere")
    options.add_playing(p)
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    options.check(p, options)
    names = list(dict.fromkeys(options.policy))
    board = None if options.no_leaderboard else options.leaderboard or leaderboard.default_path()
    if not options.env and not names:
        if board is None or not board.exists():
            p.error(f"no envs and no policies are given, and there is no leaderboard at {board}")
        return _show(standing(leaderboard.Leaderboard(board), options.seed), options.json)
    if not options.env or len(names) < 2:
        p.error(f"a tournament takes at least one env and two different policies; got {options.env} and {names}")
    return _show(_play(options, names, None if board is None else leaderboard.Leaderboard(board)), options.json)


def _play(options: Any, names: Sequence[str], board: leaderboard.Leaderboard | None) -> dict[str, Any]:
    setting = Setting(options)
    label = Label(setting)
    pairings = [pairing for env in setting.envs for pairing in pairings_of(setting, env, names)]
    with Journal(options.out) as journal, setting.stage(journal) as stage:
        games = {p.key: list(p.games(share(setting, p, options.games), options.seed)) for p in pairings}
        failures = stage.play([game for some in games.values() for game in some])
        played = [(p, journal_of(journal, games[p.key])) for p in pairings]
        rows = []
        for pairing, records in played:
            failed = [failures[g.key] for g in games[pairing.key] if g.key in failures]
            zero_sum = setting.zero_sum(pairing.title)
            rows.append(summary.row(pairing, records, options.seed, samples=1, failed=failed, zero_sum=zero_sum))
        met = crossplay.meetings(played, label)
        results = {
            **table(met, [label.name(name) for name in names], options.seed),
            "rows": rows,
            "failed": len(failures),
            "setting": setting.facts(),
        }
        if board is not None:
            results["leaderboard"] = {"file": str(board.path), "new_games": board.add(met), "games": len(met)}
        journal.write_results(results)
    return results


def pairings_of(setting: Setting, env: str, names: Sequence[str]) -> Iterator[games.Pairing]:
    """Of an env: all pairs; where more than two sides sit, each policy also alone against all others; where one does,
    each policy by itself."""
    sides = len(setting.pairing(env, names[0], names[0]).sides)
    if sides == 1:
        yield from (setting.pairing(env, name, name) for name in sorted(names))
    else:
        ordered = sorted(names)  # equal games have equal keys, whoever is named first
        pairs = combinations(ordered, 2) if sides == 2 else permutations(ordered, 2)
        yield from (setting.pairing(env, first, second) for first, second in pairs)


def share(setting: Setting, pairing: games.Pairing, games: int) -> int:
    """Games of one pairing: half of what a pair has where it meets in two pairings."""
    return games if len(pairing.sides) <= 2 else max(1, games // 2)


class Label:
    """Names entrants and envs so that equal names mean equal players and games, also in other tournaments."""

    def __init__(self, setting: Setting):
        self.setting = setting

    def name(self, word: str) -> str:
        """The word, with what else decides how it plays where that is not the default."""
        facts = self.setting.identity(word)
        usual = {"temperature": 1.0, "renderer": "auto"}
        said = [f"{k} {v}" for k, v in facts.items() if v is not None and v != usual.get(k)]
        return f"{word} ({', '.join(said)})" if said else word

    def env(self, pairing: games.Pairing) -> str:
        args = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(pairing.args.items()))
        return f"{pairing.env} ({args})" if args else pairing.env


def table(met: Sequence[crossplay.Met], names: Sequence[str], seed: int) -> dict[str, Any]:
    """What a list of games says: `ratings`, `payoffs`, `meta_nash`, `openskill`, and `notes` on what is missing."""
    present = [name for name in names if any(name in (one.first, one.second) for one in met)]
    notes = [f"{name} has no counted game" for name in names if name not in present]
    matrix = crossplay.payoffs(met, present)
    mixture, why = crossplay.equilibrium(matrix, present) if present else (None, None)
    skills, why_not = crossplay.online(met)
    notes += [said for said in (why, why_not) if said]
    return {
        "ratings": crossplay.ratings(met, seed),
        "payoffs": {"names": present, "matrix": [[None if np.isnan(v) else float(v) for v in line] for line in matrix]},
        "meta_nash": mixture,
        "openskill": skills,
        "envs": sorted({one.env for one in met}),
        "notes": notes,
    }


def standing(board: leaderboard.Leaderboard, seed: int) -> dict[str, Any]:
    """The leaderboard: `table` over all games, with OpenSkill ratings that went on from tournament to tournament."""
    met = board.games()
    names = list(dict.fromkeys(name for one in met for name in (one.first, one.second)))
    found = table(met, names, seed)
    return {**found, "openskill": board.skills() or None, "leaderboard": {"file": str(board.path), "games": len(met)}}


def _show(results: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(results))
    else:
        for line in lines(results):
            print(line)
    return 1 if results.get("failed") else 0


def lines(results: dict[str, Any]) -> Iterator[str]:
    """The results for people."""
    yield f"{', '.join(results['envs']) or 'no games'}"
    skills, mixture = results["openskill"] or {}, results["meta_nash"] or {}
    width = max([6, *map(len, results["ratings"])])
    yield f"{'':3}{'policy':<{width}}    Elo   95 % interval    score  games  meta-Nash  OpenSkill"
    for place, (name, one) in enumerate(results["ratings"].items(), 1):
        low, high = one["ci95"]
        skill = f"{skills[name]['mu']:5.1f} ± {skills[name]['sigma']:.1f}" if name in skills else ""
        share_ = f"{mixture[name]:9.2f}" if name in mixture else " " * 9
        yield (
            f"{place:<3}{name:<{width}} {one['elo']:6.0f}   {low:5.0f} .. {high:<5.0f}   {one['score']:6.1%} "
            f"{one['games']:6}  {share_}  {skill}"
        )
    names, matrix = results["payoffs"]["names"], results["payoffs"]["matrix"]
    if names:
        places = [names.index(name) for name in results["ratings"] if name in names]  # numbered as above
        names, matrix = [names[k] for k in places], [[matrix[k][other] for other in places] for k in places]
        yield "wins minus losses of the row against the column:"
        yield f"{'':{width + 3}}" + "".join(f"{k:>8}" for k in range(1, len(names) + 1))
        for k, (name, values) in enumerate(zip(names, matrix), 1):
            yield f"{k:<3}{name:<{width}}" + "".join("       ?" if v is None else f"{v:+8.3f}" for v in values)
    for one in results.get("rows", ()):
        for error in one.get("errors", ()):
            yield f"error: {one['policy']} against {one['opponent']} in {one['env']}: {error}"
    yield from (f"note: {text}" for text in results["notes"])
    if "new_games" in results.get("leaderboard", {}):
        found = results["leaderboard"]
        said = "" if found["new_games"] else " (the same policies on the same seeds: another --seed gives new games)"
        yield f"{found['new_games']} of {found['games']} games are new on the leaderboard {found['file']}{said}"
