"""The weights of several learners as one.

All are LoRA weights over one base model. A snapshot covers all learners, so code that keeps, averages, evaluates and
publishes weights need not know how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from inference.files import adapter_folder, tensors
from legos_train.errors import ConfigError
from legos_train.model.backend import GroupBytes, Snapshot, TrainerBackend
from legos_train.rollout import WeightReceiver
from legos_train.rollout.players import actors, words


class PopulationBackend:
    """A `WeightStore` over the backends of several learners, by which each learns by itself; see `Learners`."""

    def __init__(self, members: Mapping[str, TrainerBackend]):
        self.members = dict(members)
        first = next(iter(self.members.values()))
        self.capabilities, self.vocabulary = first.capabilities, first.vocabulary
        self.notes = list(dict.fromkeys(note for one in self.members.values() for note in one.notes))

    def _each(self, make: Callable[[TrainerBackend], Snapshot], version: int) -> Snapshot:
        return Snapshot(version, {name: make(one) for name, one in self.members.items()})

    def anchor(self, reference: Snapshot | None) -> None:
        for name, one in self.members.items():
            one.anchor(None if reference is None else reference.content[name])

    def fold_average(self, step: int) -> None:
        for one in self.members.values():
            one.fold_average(step)

    def snapshot(self, version: int) -> Snapshot:
        return self._each(lambda one: one.snapshot(version), version)

    def average(self, version: int) -> Snapshot:
        return self._each(lambda one: one.average(version), version)

    def distance(self, before: Snapshot) -> float:
        return max(one.distance(before.content[name]) for name, one in self.members.items())

    def load(self, snapshot: Snapshot) -> None:
        for name, one in self.members.items():
            one.load(snapshot.content[name])

    def publish(self, target: WeightReceiver, name: str, snapshot: Snapshot) -> None:
        """See `TrainerBackend`; an adapter for each learner."""
        for learner, one in self.members.items():
            one.publish(target, actors.adapter_name(name, learner), snapshot.content[learner])

    def drop_caches(self) -> None:
        for one in self.members.values():
            one.drop_caches()

    def fingerprint(self) -> bytes:
        return b"".join(one.fingerprint() for one in self.members.values())

    # --- files -------------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> Snapshot:
        """See `TrainerBackend`. A folder with an adapter for each learner, or one adapter that all start from."""
        run, which = words.run_and_weights(str(path))
        if which in words.PUBLISHED and (Path(run) / which).is_dir():
            path = Path(run) / which
        folders = {name: path / name for name in self.members}
        if (path / "config.toml").exists() and not adapter_folder.is_adapter(path):
            folders = {name: path / "adapter" / name for name in self.members}
        there = [name for name, folder in folders.items() if folder.is_dir()]
        if there and len(there) < len(folders):
            lacking = ", ".join(name for name in folders if name not in there)
            raise ConfigError(f"init_adapter {str(path)!r} has no adapter of {lacking}; it has {', '.join(there)}")
        weights = {name: one.read(folders[name] if there else path) for name, one in self.members.items()}
        return Snapshot(min(one.version for one in weights.values()), weights)

    def read_run(self, path: Path, most: int, learner: str | None = None) -> dict[str, Snapshot]:
        """See `TrainerBackend`. Each learner gets its own part; from a run of one policy all get the same."""
        own = {name: one.read_run(path, most, name) for name, one in self.members.items()}
        first = next(iter(own.values()))
        return {
            name: Snapshot(first[name].version, {learner: found[name] for learner, found in own.items()})
            for name in first
        }

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        """See `TrainerBackend`; `folder/LEARNER` for each."""
        for name, one in self.members.items():
            one.write(snapshot.content[name], folder / name, {**facts, "learner": name})

    def pack(self, snapshot: Snapshot) -> GroupBytes:
        """See `TrainerBackend`: one file, with the names LEARNER/WEIGHT."""
        return partial(_merged, {name: one.pack(snapshot.content[name]) for name, one in self.members.items()})

    def unpack(self, data: bytes, version: int) -> Snapshot:
        groups: dict[str, dict[str, tensors.Tensor]] = {name: {} for name in self.members}
        for key, tensor in tensors.parse(data).tensors.items():
            name, _, rest = key.partition("/")
            groups[name][rest] = tensor
        own = {name: tensors.render(group) for name, group in groups.items()}
        return Snapshot(version, {name: one.unpack(own[name], version) for name, one in self.members.items()})


def _merged(groups: Mapping[str, GroupBytes]) -> bytes:
    parsed = {name: tensors.parse(make()).tensors for name, make in groups.items()}
    return tensors.render({f"{name}/{key}": one for name, group in parsed.items() for key, one in group.items()})
