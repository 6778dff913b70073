"""A summary of a finished run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from legos_train.observe import no_update
from legos_train.observe.eval_numbers import by_weights, latest
from legos_train.observe.no_update import MetricsRow
from legos_train.observe.verdict import verdict


@dataclass(slots=True)
class Result:
    """The result of a run: its directory and the exact or sampled numbers before and after.

    Attributes:
        run_dir: its directory.
        steps: steps done; fewer than requested if the run was stopped (`stopped` says why).
        seconds: how long they took.
        start: the evaluation before the first step.
        last: that of the last weights.
        average: that of the weight average.
        best: that of the best evaluated weights, with their `step`.
        published: which weights `RUN/adapter` has, `average` or `last`; `published_why` says why.
        stopped: why the run ended early.
        updates: the number of optimiser updates that learned something; None if unknown, because rows are missing or do
            not say it.
        against: win rates of the published weights against the base and against weights from earlier in the run.
        verdict: whether the run learned, in words.
    """

    run_dir: Path
    steps: int
    seconds: float
    start: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    average: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    published: str = "last"
    stopped: str | None = None
    published_why: str = ""
    updates: int | None = None
    against: dict[str, float] = field(default_factory=dict)
    verdict: str = ""

    @classmethod
    def from_rows(
        cls,
        path: Path,
        records: Sequence[MetricsRow],
        start: Mapping[str, float],
        after: Mapping[str, float],
        weights: str,
    ) -> Result:
        """The result with its verdict, from the rows of a run, the evaluation before it, and `after`, that of the
        `weights` that the verdict is about.
        """
        updates = sum(record.get("learning_updates", 0) for record in records)
        complete = not records or (len(records) == records[-1]["step"] and "learning_updates" in records[-1])
        known = updates if complete else None
        advice = "" if updates else no_update.what_to_change(records)
        history = [(r["step"], by_weights(r["eval"])[weights == "average"]) for r in records if r.get("eval")]
        told = verdict(start, after, updates=known, advice=advice, weights=weights, history=history)
        seconds = math.fsum(record["seconds"] for record in records)
        return cls(path, records[-1]["step"] if records else 0, seconds, dict(start), updates=known, verdict=told)

    @classmethod
    def so_far(
        cls, path: Path, records: Sequence[MetricsRow], start: Mapping[str, float], steps: int, stopped: str
    ) -> Result:
        """The result so far of an unfinished run of `steps` steps: the last evaluation of each env."""
        last, average = by_weights(latest(record.get("eval") for record in records))
        result = cls.from_rows(path, records, start, last, "last")
        result.last, result.average, result.published, result.stopped = last, average, "nothing yet", stopped
        if result.updates == 0:
            result.verdict = f"No update yet after {result.steps} of {steps} steps."
        elif not last:
            result.verdict = f"No evaluation yet after {result.steps} of {steps} steps."
        else:
            result.verdict = f"So far: {result.verdict}"
        return result

    def kept(self) -> dict[str, Any]:
        """The contents of result.json."""
        return {name: value for name, value in asdict(self).items() if name != "run_dir"}

    @classmethod
    def from_kept(cls, path: Path, kept: Mapping[str, Any]) -> Result:
        """The inverse of `kept`.

        Raises:
            TypeError: it is not a result.
        """
        result = cls(path, **kept)
        if not isinstance(result.steps, int):
            raise TypeError(f"its steps are {result.steps!r}")
        return result
