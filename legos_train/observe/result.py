"""What a run leaves behind, in short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Result:
    """What a run leaves behind: its directory and the exact or played numbers before and after.

    Attributes:
        run_dir: its directory.
        steps: how many were done: fewer than asked for when the run was stopped (`stopped` says why).
        seconds: how long they took.
        start: what was measured before the first step.
        last: of the last weights.
        average: of the weight average.
        best: of the best weights that were measured, with their `step`.
        published: which weights `RUN/adapter` has, `average` or `last`; `published_why` says why.
        stopped: why the run ended early.
        updates: the optimiser updates that something was learned from; None for a run of an earlier version.
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

    def kept(self) -> dict[str, Any]:
        """What result.json has."""
        return {name: value for name, value in asdict(self).items() if name != "run_dir"}

    @classmethod
    def from_kept(cls, path: Path, kept: Mapping[str, Any]) -> Result:
        """The opposite of `kept`."""
        return cls(path, **kept)
