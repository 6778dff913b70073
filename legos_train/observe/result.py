"""What a run leaves behind, in short."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Result:
    """What a run leaves behind: its directory and the exact or played numbers before and after.

    `steps` is how many were done: fewer than asked for when the run was stopped (`stopped` says why).
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
