"""From measured steps of few episodes to a step of many: how time and memory grow with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SAMPLE, GROWTH = 16, 4
"""Episodes of the first measured step, and the growth factor of each following one."""


@dataclass(frozen=True)
class Measured:
    """Measurements of a step of `size` episodes.

    Seconds of playing and of learning, the peaks of MLX and of the process in bytes, the turns played, with prompts of
    `tokens` on average, the tokens of the largest `part` of the batch in learning, the share of episodes that an
    invalid move ended although the legal ones were known, and the tokens with which all rows of that part begin.
    """

    size: int
    turns: float
    tokens: float
    part: float
    play: float
    learn: float
    peak: float
    process: float
    broken: float = 0.0
    shared: float = 0.0

    @property
    def seconds(self) -> float:
        return self.play + self.learn


def batch_sizes(most: int, group: int) -> list[int]:
    """Episodes of the steps to measure, at least two, since the first also loads what is loaded lazily.

    Whole groups, growing, the last one as large as the run's.
    """
    sizes, size = [], max(SAMPLE, group)
    while size < most:
        sizes.append(size - size % group)
        size *= GROWTH
    return [*sizes, most] if sizes else [most, most]


def continued(steps: Sequence[Measured], size: int, largest: int) -> Measured:
    """A step of `size` episodes that are as long as the last ones: the last step if it had as many, else extrapolated
    linearly from the last two. Time scales with turns; MLX's peak with the tokens of a part, at most `largest` and
    what its rows begin with. A smaller step may have had the higher peak: it computed the reference that later ones
    found in a cache.
    """
    last, highest = steps[-1], max(step.peak for step in steps)
    if last.size == size:
        return replace(last, peak=highest)
    before = steps[-2] if len(steps) > 1 else Measured(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    turns = last.turns * size / last.size
    part = min(last.part * size / last.size, max(largest + last.shared, last.part))

    def further(name: str, by: str, goal: float) -> float:
        now, then, x, x_then = (getattr(step, key) for key in (name, by) for step in (last, before))
        if x_then >= x:  # episodes got so much shorter that a larger step had no more turns
            return float(now * goal / x) if x else float(now)
        return float(now + max(0.0, now - then) / (x - x_then) * (goal - x))

    play, learn = (further(name, "turns", turns) for name in ("play", "learn"))
    process = further("process", "turns", turns) if before.size else last.process
    peak = max(highest, further("peak", "part", part))
    return Measured(size, turns, last.tokens, part, play, learn, peak, process, last.broken, last.shared)


def filled(steps: Sequence[Measured], resident: float, largest: int) -> float:
    """MLX's peak once rows as long as those measured fill a part: `largest` tokens, and what they begin with.

    Scaled from the step with the highest peak; weights are `resident`.
    """
    highest = max(steps, key=lambda step: step.peak)
    return resident + max(highest.peak - resident, 0.0) * max(1.0, (largest + highest.shared) / max(highest.part, 1.0))
