"""`legos tournament ENV ... -m A -m B -m C`: all pairs, payoff matrix, meta-Nash and ratings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from legos_train.cli.arguments import Parser
from legos_train.cli.playing_flags import add_playing, chosen, env_names
from legos_train.evaluation import Session, SessionOptions, crossplay
from legos_train.rollout.players import words

DESCRIPTION = f"""Play every policy against every other in every env, in all seats, on the same seeds.

Prints ratings with intervals, the payoff of every pair, and the mixture that no policy beats (meta-Nash).
Without envs and policies, it shows the leaderboard: a file that collects the games of all tournaments.

{words.policy_help()}"""
EXAMPLES = """
legos tournament KuhnPoker-v0 Nim-v0 -m tiny -m random -m optimal
legos tournament KuhnPoker-v0 TicTacToe-v0 -m random -m optimal -n 20 --leaderboard board.sqlite
legos tournament KuhnPoker-v0 -m runs/a -m runs/b -m tiny --out cups/ab    # rerun to resume
legos tournament                                                           # the leaderboard
"""


def make_parser() -> Parser:
    p = Parser("tournament", DESCRIPTION, EXAMPLES)
    env_names(p, "*")
    p.repeated("-m", "--policy", metavar="POLICY", help="a policy that takes part; give at least two")
    p.option(SessionOptions, "games", "-n", help="games per pair and env", default=128)
    p.value(
        "--leaderboard",
        type=Path,
        metavar="FILE",
        help="file for games and ratings, created if missing (default: leaderboard.sqlite in LEGOS_DATA, otherwise in "
        "runs/)",
    )
    p.add_argument("--no-leaderboard", action="store_true", help="do not add these games to a leaderboard")
    add_playing(p)
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    names = list(dict.fromkeys(map(words.spelled, options.policy)))
    path = None if options.no_leaderboard else options.leaderboard or crossplay.default_path()
    if not options.env and not names:
        if path is None or not path.exists():
            p.error(f"give envs and policies: there is no leaderboard at {path} to show")
        return _show(crossplay.leaderboard_standings(path, options.seed), options.json)
    if not options.env or len(names) < 2:
        p.error(f"a tournament needs at least one env and two different policies; got {options.env} and {names}")
    return _show(crossplay.tournament(Session(chosen(SessionOptions, options)), names, path), options.json)


def _show(results: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(results))
    else:
        for line in lines(results):
            print(line)
    return 1 if results.get("failed") else 0


def lines(results: dict[str, Any]) -> Iterator[str]:
    """Human-readable results."""
    yield f"{', '.join(results['envs']) or 'no games'}"
    skills, mixture = results["openskill"] or {}, results["meta_nash"] or {}
    width = max([6, *map(len, results["ratings"])])
    yield f"{'':3}{'policy':<{width}}    Elo   95 % interval    score  games  meta-Nash  OpenSkill"
    for place, (name, one) in enumerate(results["ratings"].items(), 1):
        low, high = one["ci95"]
        ends = f"{low:5.0f} .. {high:<5.0f}" if high - low >= 0.5 else f"{'none':^14}"
        skill = f"{skills[name]['mu']:5.1f} ± {skills[name]['sigma']:.1f}" if name in skills else ""
        share_ = f"{mixture[name]:9.2f}" if name in mixture else " " * 9
        yield (
            f"{place:<3}{name:<{width}} {one['elo']:6.0f}   {ends}   {one['score']:6.1%} "
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
        board = results["leaderboard"]
        old = board["games"] and not board["new_games"]
        hint = " (the same policies on the same seeds: another --seed gives new games)" if old else ""
        yield f"{board['new_games']} of {board['games']} games are new on the leaderboard {board['file']}{hint}"
