"""A store that keeps artifacts between episodes: problems by a proposer, items of a data set, passages of a corpus.

    with ArtifactStore("run/artifacts.db") as store:
        number = store.add({"problem": "3 + 4", "answer": "7"}, step=1)
        store.record(number, successes=3, attempts=8, step=1)
        store.sample(4, rng, gate=(0.1, 0.9), max_age=100, step=20)

SQLite in WAL mode: every call is one transaction, so a crash leaves the store as it was before the call or after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import numpy as np

from legos_envs import arguments
from legos_train.arena.artifact import LEARNABILITY, Artifact, Level, canonical, eligible, to_json
from legos_train.arena.artifact_db import FORMAT, Database
from legos_train.disk import fsops

COLUMNS = "id, pool, key, content, meta, weight, step, successes, attempts, last"


class ArtifactStore:
    """Artifacts with weights, pass rates and ages. One process writes; its threads may share the store.

    Args:
        path: the SQLite file, created if missing; `":memory:"` keeps it in memory.
        capacity: maximum number of artifacts. Beyond it, the one with the least `learnability` is dropped; in a tie,
            the oldest.
        decay: factor on the counts before new ones are added, so that a pass rate follows a changing policy; 1 counts
            all attempts alike.

    Raises:
        ValueError: the file is not an artifact store, or an argument is out of range.
    """

    def __init__(self, path: str | Path = ":memory:", *, capacity: int = 10_000, decay: float = 1.0):
        self.path = str(path)
        self.capacity = arguments.whole("capacity", capacity, 1)
        self.decay = arguments.real("decay", decay, 0.0, 1.0)
        self._db = Database(self.path)
        self._drawn: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._version = (-1, -1)

    def transaction(self) -> AbstractContextManager[None]:
        """All calls in the block take effect, or none if it raises. Blocks nest; the outermost one counts."""
        return self._db.transaction()

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        content: Mapping[str, Any],
        *,
        pool: str = "default",
        key: str | None = None,
        weight: float = 1.0,
        step: int = 0,
        meta: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Stores an artifact; returns its id, or None if the pool already has one with that key.

        Args:
            content: what a task sampler passes to `reset`; JSON values.
            pool: artifacts of different pools are never duplicates of one another.
            key: equal for equal artifacts; by default the content as JSON, its keys sorted.
            weight: how often it is drawn relative to others, at least 0.
            step: the training step, from which its age counts.
            meta: further JSON values to store.

        Raises:
            ValueError: an argument is out of range, or has no JSON form.
        """
        body = to_json("content", content)
        more = to_json("meta", {} if meta is None else meta)
        weight, step = arguments.real("weight", weight, 0.0), arguments.whole("step", step, 0)
        name = canonical(content) if key is None else key
        with self.transaction():
            if self._db.query("SELECT 1 FROM artifacts WHERE pool = ? AND key = ?", (pool, name)):
                return None
            done = self._db.run(
                "INSERT INTO artifacts (pool, key, content, meta, weight, step, successes, attempts) "
                "VALUES (?, ?, ?, ?, ?, ?, 0, 0)",
                (pool, name, body, more, weight, step),
            )
            number = done.lastrowid
            self._evict(keep=number)
        return number

    def _evict(self, keep: int | None) -> None:
        over = len(self) - self.capacity
        if over > 0:
            least = f"SELECT id FROM artifacts WHERE id IS NOT ? ORDER BY {LEARNABILITY}, id LIMIT ?"  # noqa: S608
            self._db.run(f"DELETE FROM artifacts WHERE id IN ({least})", (keep, over))  # noqa: S608

    def record(self, id: int, successes: float, attempts: float, step: int) -> None:
        """Adds attempts and successes to an artifact's pass rate.

        Raises:
            ValueError: not 0 <= successes <= attempts.
            KeyError: there is no such artifact (any more).
        """
        attempts = arguments.real("attempts", attempts, 0.0)
        successes = arguments.real("successes", successes, 0.0, attempts)
        with self.transaction():
            done = self._db.run(
                "UPDATE artifacts SET successes = successes * ? + ?, attempts = attempts * ? + ?, last = ? "
                "WHERE id = ?",
                (self.decay, successes, self.decay, attempts, arguments.whole("step", step, 0), id),
            )
            if not done.rowcount:
                raise KeyError(f"the artifact store has no artifact {id!r}; it was never added or has been evicted")

    # --- reading -----------------------------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        *,
        pool: str | None = None,
        gate: tuple[float, float] | None = None,
        difficulty: tuple[float, float] | None = None,
        max_age: int | None = None,
        step: int | None = None,
        weighted: bool = True,
        learnable: bool = False,
        replace: bool = False,
    ) -> list[Artifact]:
        """Draws artifacts; a function of the store's content, the arguments and the generator's state.

        Args:
            replace: whether one artifact may be drawn more than once.
            n: how many. Without `replace` no artifact is drawn twice, and there are fewer than `n` if fewer are
                eligible.
            rng: random generator; advanced only if something is eligible.
            pool: draw only from this pool.
            gate: learnability gate (low, high): artifacts with pass rates outside are left out; those never tried pass.
            difficulty: only artifacts with pass rates in (low, high); those never tried are left out.
            max_age: artifacts added more than so many steps before `step` are left out.
            step: the current step, needed for `max_age`.
            weighted: draw in proportion to the artifacts' weights; otherwise uniformly.
            learnable: also multiply the odds by `learnability`.

        Raises:
            ValueError: an argument is out of range.
        """
        if arguments.whole("n", n, 0) == 0:
            return []
        with self._db.lock:
            ids, odds = self._eligible(pool, gate, difficulty, max_age, step, weighted, learnable)
            if not len(ids):
                return []
            if not replace:
                n = min(n, len(ids))
            drawn = rng.choice(ids, size=n, replace=replace, p=odds)
            return [self[int(number)] for number in drawn]

    def _eligible(self, *query: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids (K,) that may be drawn, in order, and their probabilities (K,); kept until the store changes."""
        version, asked = self._db.version, repr(query)
        if version != self._version:
            self._drawn.clear()
            self._version = version
        if asked in self._drawn:
            return self._drawn[asked]
        rows = self._db.query(*eligible(*query))
        ids = np.array([number for number, _ in rows], np.int64)
        odds = np.array([odd for _, odd in rows], np.float64)
        self._drawn[asked] = ids, odds / odds.sum() if len(odds) else odds
        return self._drawn[asked]

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever the content may have changed."""
        return self._db.version

    def count(self, pool: str) -> int:
        """How many artifacts a pool has."""
        return int(self._db.query("SELECT COUNT(*) FROM artifacts WHERE pool = ?", (pool,))[0][0])

    def entries(self, pool: str) -> list[Artifact]:
        """The artifacts of a pool, oldest first."""
        return list(self._read("WHERE pool = ? ORDER BY id", (pool,)))

    def find(self, key: str, pool: str = "default") -> Artifact | None:
        """The artifact of a key, or None."""
        return next(self._read("WHERE pool = ? AND key = ?", (pool, key)), None)

    def recent(self, n: int, pool: str | None = None) -> list[Artifact]:
        """The `n` artifacts added last, oldest first."""
        where, values = ("WHERE pool = ?", (pool,)) if pool is not None else ("", ())
        values = (*values, arguments.whole("n", n, 0))
        return list(self._read(f"{where} ORDER BY id DESC LIMIT ?", values))[::-1]

    def pools(self, pool: str | None = None) -> dict[Level, list[Artifact]]:
        """All artifacts by difficulty: `easy`, `medium`, `hard` and `unseen`."""
        found: dict[Level, list[Artifact]] = {level: [] for level in get_args(Level)}
        for artifact in self if pool is None else self.entries(pool):
            found[artifact.level].append(artifact)
        return found

    def __getitem__(self, id: int) -> Artifact:
        found = next(self._read("WHERE id = ?", (id,)), None)
        if found is None:
            raise KeyError(f"the artifact store has no artifact {id!r}")
        return found

    def __len__(self) -> int:
        return int(self._db.query("SELECT COUNT(*) FROM artifacts")[0][0])

    def __iter__(self) -> Iterator[Artifact]:
        return self._read()

    def _read(self, rest: str = "ORDER BY id", values: Sequence[Any] = ()) -> Iterator[Artifact]:
        rows = self._db.query(f"SELECT {COLUMNS} FROM artifacts {rest}", values)  # noqa: S608
        for number, pool, key, content, meta, *numbers in rows:
            yield Artifact(number, pool, key, json.loads(content), json.loads(meta), *numbers)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The whole content as JSON values; `load` restores an equal store from them, including the next id."""
        with self._db.lock:
            last = self._db.query("SELECT seq FROM sqlite_sequence WHERE name = 'artifacts'")
            return {
                "format": FORMAT,
                "last_id": last[0][0] if last else 0,
                "artifacts": [asdict(artifact) for artifact in self],
            }

    def load(self, data: Mapping[str, Any]) -> None:
        """Replaces the content with what `dump` gave, in one transaction.

        Raises:
            ValueError: the data is of another format, or an artifact lacks a field.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"artifacts of format {data.get('format')!r} cannot be read; this version reads {FORMAT}")
        names = COLUMNS.split(", ")
        rows = []
        for artifact in data["artifacts"]:
            if lacking := [name for name in names if name not in artifact]:
                raise ValueError(f"artifact {artifact.get('id')!r} has no field {lacking[0]!r}; fields are {COLUMNS}")
            as_text = {name: to_json(name, artifact[name]) for name in ("content", "meta")}
            rows.append(tuple({**artifact, **as_text}[name] for name in names))
        with self.transaction():
            self._db.run("DELETE FROM artifacts")
            marks = ", ".join("?" * len(names))
            self._db.run_many(f"INSERT INTO artifacts ({COLUMNS}) VALUES ({marks})", rows)  # noqa: S608
            self._db.run("DELETE FROM sqlite_sequence")  # the rows have set it; ids once given never come again
            self._db.run("INSERT INTO sqlite_sequence VALUES ('artifacts', ?)", (data["last_id"],))

    def export(self, path: str | Path) -> int:
        """Writes one JSON line per artifact, in one step; returns how many."""
        lines = [json.dumps({**asdict(a), "pass_rate": a.pass_rate}, ensure_ascii=False) for a in self]
        fsops.write_text(Path(path), "".join(f"{line}\n" for line in lines))
        return len(lines)

    def close(self) -> None:
        """Closes the file; a store in memory is lost."""
        self._db.close()

    def __enter__(self) -> ArtifactStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
