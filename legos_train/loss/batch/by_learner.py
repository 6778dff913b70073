"""A batch for each of several learners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from legos_envs.records import Episode
from legos_train.loss.batch.arrays import Batch, Counters


@dataclass(frozen=True, slots=True)
class BatchByLearner:
    """The turns of a step, by learner.

    Attributes:
        parts: learner -> its batch, which may be empty.
    """

    parts: Mapping[str, Batch]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts.values())

    @property
    def counters(self) -> Counters:
        """The combined counters of all parts; rows are counted in each."""
        each = [part.counters for part in self.parts.values()]
        counts = {f.name: sum(getattr(one, f.name) for one in each) for f in fields(Counters) if f.name != "dropped"}
        dropped: Counter[str] = Counter()
        for one in each:
            dropped.update(one.dropped)
        return Counters(**counts, dropped=dict(dropped))


def seats_of(episode: Episode, learner: str) -> Episode:
    """The episode with only the seats of one learner."""
    kept = {a: t for a, t in episode.trajectories.items() if t.info.get("learner") == learner}
    return replace(episode, trajectories=kept)
