"""Generation on several ranks: each plays its share and all get all episodes; and rank 0's checkpoint for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from legos_envs import Episode
from legos_envs.records import episode_from_json, episode_to_json
from legos_train.disk import checkpoint
from legos_train.errors import RankLost
from legos_train.model import World
from legos_train.rollout import Generator, Job


class SharedGenerator:
    """Plays every `size`-th job on this rank, and returns the episodes of all ranks.

    Args:
        inner: the generator on this rank.
        world: all ranks.
    """

    def __init__(self, inner: Generator, world: World):
        self.inner, self.world = inner, world

    def run(self, jobs: Sequence[Job]) -> list[Episode]:
        """See `Generator.run`. Episodes pass through JSON on every rank, so that all ranks see identical ones."""
        world = self.world
        own = [episode_to_json(episode) for episode in self.inner.run(jobs[world.rank :: world.size])]
        try:
            shares = world.gather(json.dumps(own).encode())
        except RankLost as lost:
            raise world.stop_or(lost) from lost
        out: list[Episode | None] = [None] * len(jobs)
        for rank, share in enumerate(shares):
            out[rank :: world.size] = [episode_from_json(data) for data in json.loads(share)]
        return [episode for episode in out if episode is not None]

    def publish(self, name: str, weights: Any, version: int) -> None:
        self.inner.publish(name, weights, version)

    def unpublish(self, name: str) -> None:
        self.inner.unpublish(name)

    def drop_caches(self) -> None:
        self.inner.drop_caches()

    def close(self) -> None:
        self.inner.close()


def shared_checkpoint(world: World, found: checkpoint.LoadedCheckpoint | None) -> checkpoint.LoadedCheckpoint | None:
    """Rank 0's checkpoint on every rank, which need not see rank 0's disk."""
    parts: dict[str, bytes] = {}
    if found is not None:
        parts |= {f"groups/{name}": data for name, data in found.groups.items()}
        parts |= {f"files/{name}": data for name, data in found.files.items()}
    sizes = {name: len(data) for name, data in parts.items()}
    head = json.dumps({"state": None if found is None else found.state, "sizes": sizes}).encode()
    data = world.share(len(head).to_bytes(8, "little") + head + b"".join(parts.values()))
    if world.rank == 0:
        return found
    place = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:place])
    if header["state"] is None:
        return None
    shared: dict[str, dict[str, bytes]] = {"groups": {}, "files": {}}
    for name, size in header["sizes"].items():
        kind, _, own = name.partition("/")
        shared[kind][own], place = data[place : place + size], place + size
    return checkpoint.LoadedCheckpoint(shared["groups"], header["state"], shared["files"])
