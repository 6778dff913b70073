"""Round robin: all policies meet in several envs; the results count in `standings`, and on a leaderboard if wanted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from legos_train.evaluation.games import Pairing, PlannedGame, Record
from legos_train.evaluation.leaderboard import Leaderboard, Meeting
from legos_train.evaluation.leaderboard import default_path as default_path  # noqa: PLC0414  offered to cli
from legos_train.evaluation.outcomes import TIE
from legos_train.evaluation.session import Played, Session
from legos_train.evaluation.standings import standings
from legos_train.evaluation.summary import Row


def tournament(session: Session, policies: Sequence[str], leaderboard: Path | None) -> dict[str, Any]:
    """Plays all pairs of policies in every env of a session.

    Args:
        session: the envs, and how games are played.
        policies: the participants.
        leaderboard: file that also counts the games; created once every env and policy is known to exist.

    Returns:
        `standings` of these games, `rows` by pairing, `setting`, the number of `failed` games, and the updated
        `leaderboard`.
    """
    options = session.options
    schedule: list[tuple[Pairing, list[PlannedGame]]] = []
    for title in session.envs:
        for pairing in pairings(session, title, policies):
            # with more than two sides, a pair meets in two pairings
            count = options.games if len(pairing.sides) <= 2 else max(1, options.games // 2)
            schedule.append((pairing, list(pairing.games(count, options.seed))))
    board = None if leaderboard is None else Leaderboard(leaderboard)
    with session.playing(schedule) as (_, journal, played, rows, failed):
        games = meetings(session, played)
        results = {
            **standings(games, [entrant(session, name) for name in policies], options.seed),
            "rows": rows,
            "failed": failed,
            "setting": session.facts(),
        }
        results["notes"] += [*stakes(played, rows), *unscored(rows)]
        if board is not None:
            results["leaderboard"] = {"file": str(board.path), "new_games": board.add(games), "games": len(games)}
        journal.write_results(results)
    return results


def stakes(played: Played, rows: Sequence[Row]) -> Iterator[str]:
    """Notes on pairs where one policy wins more games, which ratings count, and the other has higher returns."""
    for (_, records), row in zip(played, rows, strict=True):
        scores = [record["score"] for record in records if record["score"] is not None]
        if row["zero_sum"] and row["mean"] and scores and (np.mean(scores) - 0.5) * row["mean"] < 0:
            yield (
                f"{row['policy']} scores {np.mean(scores):.0%} in {row['env']} against {row['opponent']}, yet its mean "
                f"return is {row['mean']:+.3f}: games are played for different stakes, and ratings count games"
            )


def unscored(rows: Sequence[Row]) -> Iterator[str]:
    """Notes on envs with unscored games, which ratings leave out."""
    for env in dict.fromkeys(row["env"] for row in rows):
        counts = [(row["games"], round(row["unscored"] * row["games"])) for row in rows if row["env"] == env]
        games, void = map(sum, zip(*counts))
        if void:
            yield (
                f"{void} of {games} games of {env} had no score: no judge decided, or its answers were not understood "
                "(--seat judge=POLICY seats another)"
            )


def pairings(session: Session, title: str, policies: Sequence[str]) -> Iterator[Pairing]:
    """The pairings of an env.

    All pairs; with more than two sides, each policy also alone against all others; with one side, each policy by
    itself.
    """
    ordered = sorted(policies)  # equal games have equal keys, regardless of order
    sides = len(session.pairing(title, policies[0], policies[0]).sides)
    if sides == 1:
        yield from (session.pairing(title, name, name) for name in ordered)
    else:
        pairs = combinations(ordered, 2) if sides == 2 else permutations(ordered, 2)
        yield from (session.pairing(title, first, second) for first, second in pairs)


def entrant(session: Session, word: str) -> str:
    """A policy's name in ratings, with any non-default settings that affect its play.

    Equal names mean equal players, across tournaments.
    """
    usual = {"temperature": 1.0, "renderer": "auto"}
    identity = session.identity(word)
    facts = [f"{k} {v}" for k, v in identity.items() if v is not None and v != usual.get(k)]
    facts += [f"system {name}={text}" for name, text in sorted(session.prompts.items())] if "system" in identity else []
    return f"{word} ({', '.join(facts)})" if facts else word


def leaderboard_standings(path: Path, seed: int) -> dict[str, Any]:
    """`standings` of all games on a leaderboard, with the OpenSkill ratings that each tournament updated."""
    board = Leaderboard(path)
    games = board.games()
    names = list(dict.fromkeys(name for one in games for name in (one.first, one.second)))
    facts = {"file": str(board.path), "games": len(games)}
    return {**standings(games, names, seed), "openskill": board.skills() or None, "leaderboard": facts}


def meetings(session: Session, played: Played) -> list[Meeting]:
    """The results of pairings; for policies that play alone, from comparing returns on the same seed."""
    results: list[Meeting] = []
    alone: dict[str, list[tuple[str, dict[Any, Record]]]] = defaultdict(list)
    for pairing, records in played:
        env = task(session, pairing)
        if len(pairing.sides) > 1:
            first, second = entrant(session, pairing.policy), entrant(session, pairing.opponent)
            results += [
                Meeting(r["key"], env, first, second, r["score"], r["seed"]) for r in records if r["score"] is not None
            ]
        else:
            scored = {(r["seed"], r["sample"]): r for r in records if "unscored" not in r["outcomes"].values()}
            alone[env].append((entrant(session, pairing.policy), scored))
    for env, entrants in alone.items():
        for i, (first, one) in enumerate(entrants):
            for second, other in entrants[i + 1 :]:
                for where in [where for where in one if where in other]:
                    margin = sum(one[where]["returns"].values()) - sum(other[where]["returns"].values())
                    score = 0.5 if abs(margin) <= TIE else float(margin > 0)
                    key = f"{one[where]['key']}|{other[where]['key']}"
                    results.append(Meeting(key, env, first, second, score, where[0]))
    return sorted(results, key=lambda one: one.seed)  # alternates pairs, for online ratings


def task(session: Session, pairing: Pairing) -> str:
    """An env's name in ratings, with its arguments, the files behind them and who has the seats of `--seat`.

    Equal names mean equal tasks, across tournaments.
    """
    facts = [f"{name}={json.dumps(value)}" for name, value in sorted(pairing.args.items())]
    facts += [f"{Path(file).name} {checksum}" for file, checksum in pairing.identity.get("source", {}).items()]
    facts += [f"{seat}={entrant(session, word)}" for seat, word in sorted(session.fixed.items())]
    return f"{pairing.env} ({', '.join(facts)})" if facts else pairing.env
