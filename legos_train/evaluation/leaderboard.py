"""Ratings that persist across tournaments: every game ever counted, in one SQLite file.

A game is counted once, by its key: the same policies on the same seed again are not new evidence. OpenSkill continues
from the last tournament; the Bradley-Terry fit is computed from all games on each request.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from legos_envs.scoring import openskill_ratings

FORMAT = 1
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS games (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, env TEXT NOT NULL, "
    "first TEXT NOT NULL, second TEXT NOT NULL, score REAL NOT NULL, seed INTEGER NOT NULL, "
    "rated INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS skills (name TEXT PRIMARY KEY, mu REAL NOT NULL, sigma REAL NOT NULL)",
)


class Meeting(NamedTuple):
    """A game between two entrants: `score` is the first one's result, 1 for a win, 0.5 for a draw, 0 for a loss."""

    key: str
    env: str
    first: str
    second: str
    score: float
    seed: int


class LeaderboardError(ValueError):
    """The file cannot be used; the message says why."""


def default_path() -> Path:
    """The default path of the leaderboard: in `LEGOS_DATA`, otherwise next to the runs."""
    return Path(os.environ.get("LEGOS_DATA") or "runs") / "leaderboard.sqlite"


class Leaderboard:
    """Games and ratings in a file, which is created if missing.

    Raises:
        LeaderboardError: the file cannot be opened or is of another kind.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if version not in (0, FORMAT) or (version == 0 and tables):
                    raise LeaderboardError(
                        f"{str(path)!r} is an SQLite file of another kind (version {version}); leaderboards have "
                        f"version {FORMAT}. Name another file with --leaderboard"
                    )
                with db:
                    for statement in SCHEMA:
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {FORMAT}")
        except (sqlite3.Error, OSError) as error:
            raise LeaderboardError(f"{str(path)!r} cannot be used as a leaderboard: {error}") from None

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

    def add(self, games: Iterable[Meeting]) -> int:
        """Counts and rates new games in their order; returns how many were new.

        Atomic: another process that adds at the same time waits.
        """
        with closing(self._open()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            before = db.total_changes
            db.executemany(
                "INSERT OR IGNORE INTO games (key, env, first, second, score, seed) VALUES (?, ?, ?, ?, ?, ?)", games
            )
            new = db.total_changes - before
            self._rate(db)
        return new

    @staticmethod
    def _rate(db: sqlite3.Connection) -> None:
        """Rates unrated games with OpenSkill; without the package they stay unrated."""
        start = {name: (mu, sigma) for name, mu, sigma in db.execute("SELECT name, mu, sigma FROM skills")}
        waiting = db.execute("SELECT first, second, score FROM games WHERE NOT rated ORDER BY number").fetchall()
        try:
            rated = openskill_ratings(({a: score, b: 1 - score} for a, b, score in waiting), start)
        except ImportError:
            return
        db.executemany("INSERT OR REPLACE INTO skills VALUES (?, ?, ?)", [(name, *s) for name, s in rated.items()])
        db.execute("UPDATE games SET rated = 1 WHERE NOT rated")

    def games(self) -> list[Meeting]:
        """All games, in the order they were counted."""
        with closing(self._open()) as db:
            rows = db.execute("SELECT key, env, first, second, score, seed FROM games ORDER BY number")
            return [Meeting(*row) for row in rows]

    def skills(self) -> dict[str, dict[str, float]]:
        """OpenSkill's `mu`, `sigma` and `ordinal` by name."""
        with closing(self._open()) as db:
            rows = db.execute("SELECT name, mu, sigma FROM skills").fetchall()
        return {name: {"mu": mu, "sigma": sigma, "ordinal": mu - 3 * sigma} for name, mu, sigma in rows}
