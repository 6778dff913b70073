"""The replay buffer between generation and training: how often to use episodes, and when they are too old.

Credit is assigned once, when episodes come in; a record keeps its advantages as long as it is used. Staleness is
checked before each use, never after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from legos_envs import Episode
from legos_envs.records import episode_from_json, episode_to_json
from legos_train.config import sections
from legos_train.credit import Advantages
from legos_train.run.all_actions.decision_points import Decisions


@dataclass(slots=True)
class ReplayBatch:
    """A batch of episodes: all of them, those kept for training with their advantages, and the version that began it.

    `decisions`: replaces the episodes in training if the loss is over all actions.
    `numbers`: metrics of stores and samplers, `left_out`: how much the filters removed, for the log.
    """

    episodes: list[Episode]
    kept: list[Episode]
    advantages: list[Advantages]
    version: int
    numbers: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    uses: int = 0
    decisions: Decisions | None = None


class ReplayBuffer:
    """Holds records until they have been used `reuse` times or are more than `max_staleness` steps old.

    With `reuse = 1`, the default, each batch is used once, as soon as it arrives, and never ages here. With more, a
    batch that is still fresh enough is trained on again instead of waiting for a new one.
    """

    def __init__(self, settings: sections.ReplaySettings):
        self.settings = settings
        self.records: list[ReplayBatch] = []

    def __len__(self) -> int:
        return len(self.records)

    def add(self, record: ReplayBatch) -> None:
        """Adds a batch; beyond `capacity` the oldest is dropped."""
        self.records.append(record)
        del self.records[: -self.settings.capacity]

    def due(self, version: int) -> bool:
        """Whether the next step needs a fresh batch."""
        return not any(self._usable(record, version) for record in self.records)

    def take(self, version: int) -> tuple[ReplayBatch, dict[str, int]]:
        """The batch to train on at a policy version, and how many episodes were dropped, by reason.

        The least used, and among these the newest. Batches older than `max_staleness` are dropped first.

        Raises:
            LookupError: no batch is usable.
        """
        old = [r for r in self.records if self._too_old(r, version)]
        self.records = [r for r in self.records if r not in old]
        if not self.records:
            raise LookupError(f"no episodes to train on at version {version}: {len(old)} batches were too old")
        chosen = max(self.records, key=lambda r: (-r.uses, r.version))
        chosen.uses += 1
        self.records = [r for r in self.records if r.uses < self.settings.reuse]
        dropped = sum(len(r.kept) for r in old)
        return chosen, ({"replay_stale": dropped} if dropped else {})

    def _usable(self, record: ReplayBatch, version: int) -> bool:
        return record.uses < self.settings.reuse and not self._too_old(record, version)

    def _too_old(self, record: ReplayBatch, version: int) -> bool:
        return self.settings.reuse > 1 and version - record.version > self.settings.max_staleness

    def held(self) -> ReplayBuffer:
        """A copy of the buffer in its current state."""
        other = ReplayBuffer(self.settings)
        other.records = [replace(record) for record in self.records]
        return other

    def dump(self) -> bytes:
        """The records as JSON lines."""
        return b"".join(json.dumps(_to_json(record)).encode() + b"\n" for record in self.records)

    def load(self, data: bytes) -> None:
        self.records = [_from_json(json.loads(line)) for line in data.splitlines()]


def _to_json(record: ReplayBatch) -> dict[str, Any]:
    places = {id(episode): place for place, episode in enumerate(record.episodes)}
    return {
        "episodes": [episode_to_json(episode) for episode in record.episodes],
        "kept": [places[id(episode)] for episode in record.kept],
        "advantages": [{a: v.tolist() for a, v in advantages.items()} for advantages in record.advantages],
        "version": record.version,
        "numbers": record.numbers,
        "left_out": record.left_out,
        "uses": record.uses,
    }


def _from_json(data: dict[str, Any]) -> ReplayBatch:
    episodes = [episode_from_json(episode) for episode in data["episodes"]]
    advantages = [{a: np.array(v, dtype=np.float64) for a, v in one.items()} for one in data["advantages"]]
    kept = [episodes[place] for place in data["kept"]]
    return ReplayBatch(episodes, kept, advantages, data["version"], data["numbers"], data["left_out"], data["uses"])
