"""The SQLite file of an artifact store: opened and checked, one transaction at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, pool TEXT NOT NULL, key TEXT NOT NULL, content TEXT NOT NULL,
    meta TEXT NOT NULL, weight REAL NOT NULL, step INTEGER NOT NULL, successes REAL NOT NULL, attempts REAL NOT NULL,
    last INTEGER, UNIQUE (pool, key)
)
"""


class Database:
    """A connection that threads share. `changes` grows with every transaction begun.

    Raises:
        ValueError: the path cannot be opened, or is a file of another kind.
    """

    def __init__(self, path: str):
        self.path = path
        self.lock = threading.RLock()
        self.changes = 0
        self._depth = 0
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise ValueError(f"cannot open the artifact store {path!r}: {error}; is its directory there?") from None
        try:
            self._open()
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise ValueError(f"{path!r} is not an artifact store: {error}; name another file") from None
            raise

    def _open(self) -> None:
        ((version,),) = self.query("PRAGMA user_version")
        tables = [name for (name,) in self.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if version not in (0, FORMAT) or (version == 0 and tables):
            raise ValueError(
                f"{self.path!r} is an SQLite file of another kind (version {version}, tables {tables}); artifact "
                f"stores have version {FORMAT}. Name another file"
            )
        self.query("PRAGMA journal_mode = WAL")
        self.query("PRAGMA synchronous = NORMAL")  # a crash of the machine may take the last calls, never a part of one
        with self.transaction():
            self.run(SCHEMA)
            self.run(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything run in the block takes effect, or nothing if it raises. Blocks nest; the outermost one counts."""
        with self.lock:
            self.changes += 1
            if not self._depth:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                if self._depth == 1:
                    self._db.execute("COMMIT")
            except BaseException:
                if self._depth == 1:
                    if self._db.in_transaction:  # a full disk has ended it already
                        self._db.execute("ROLLBACK")
                    self.changes += 1
                raise
            finally:
                self._depth -= 1

    def run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Runs a statement; returns the cursor, whose `rowcount` and `lastrowid` show what it did."""
        return self._db.execute(sql, values)

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement once per row."""
        self._db.executemany(sql, rows)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows that a query finds."""
        with self.lock:
            return self._db.execute(sql, values).fetchall()

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever something was written to the file, even over another connection."""
        return self.changes, self.query("PRAGMA data_version")[0][0]

    def close(self) -> None:
        """Closes the file; further calls do nothing."""
        with self.lock:
            self._db.close()

    def __del__(self) -> None:
        db = getattr(self, "_db", None)  # Python 3.13 warns of connections that are left open
        if db is not None:
            db.close()
