"""The trainer's interface to the weights, implemented on MLX (mlx_backend.py) and at a service (tinker/).

Weights leave a backend only as references, and as bytes for files. So the next one, on another library or machine, is a
new folder and a row in `config/backend_rows.py`. Importing this file loads no MLX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch

if TYPE_CHECKING:
    from legos_train.rollout import WeightReceiver

ROUNDING = 3.0
"""The most, in nats, that half precision may change a token's log-probability."""
FULL_ROW_VOCABULARY = 8192
"""Vocabularies up to this size are kept as whole distributions, for an exact KL."""
GroupBytes = Callable[[], bytes]
"""A group of tensors for a checkpoint: makes the content of its safetensors file, which may be long after it was taken
(`inference.files.tensors` turns arrays of MLX or numpy into it)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do besides policy gradients; a config that needs more is rejected before the first step."""

    exact_kl: bool = True
    """KL over whole distributions (`loss.kl_estimator = "exact"`), not only from sampled tokens."""
    entropy: bool = True
    """An entropy bonus (`loss.entropy`), and a penalty on illegal answers (`loss.legality`)."""
    weight_average: bool = True
    """Averages of weights over steps (`average.kind`)."""
    own_weights: bool = True
    """Weights from files (`init_adapter`, `league.pool_from`), and a moving reference (`loss.magnet_every`)."""
    state_at_any_time: bool = True
    """Whether its state is cheap enough to take after every step; else it is taken only when written."""
    rounding: float = ROUNDING
    """The most, in nats, that rounding may change an engine's log-probabilities; see `sampling.max_mismatch`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable reference to weights. Only the backend that created it looks inside.

    Attributes:
        version: optimiser steps in the weights.
        content: arrays, or a path on a server, as the backend keeps them.
    """

    version: int
    content: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BackendState:
    """A backend's state for a checkpoint: groups of tensors, one file each, and numbers as JSON. It stays what it was
    while training goes on.
    """

    groups: dict[str, GroupBytes]
    numbers: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a backend holds in this process: bytes of the frozen model, bytes of the trained state (weights, optimiser,
    average), and the number of trained weights.
    """

    base: int
    state: int
    weights: int


class WeightStore(Protocol):
    """Weights of one policy or of several: kept, averaged, saved and published, whoever trains them."""

    capabilities: Capabilities
    vocabulary: int
    """The number of tokens in the vocabulary."""
    notes: list[str]
    """Notes for the user at the start of the run."""

    def anchor(self, reference: Snapshot | None) -> None:
        """Sets the reference of the KL penalty; None: the base model."""
        ...

    def fold_average(self, step: int) -> None:
        """Adds the weights after `step` to their average, following `average` in the config."""
        ...

    # --- references --------------------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        """The current weights."""
        ...

    def average(self, version: int) -> Snapshot:
        """The weight average so far; the current weights if there is none."""
        ...

    def distance(self, before: Snapshot) -> float:
        """The largest absolute change of any weight since `before`; 0.0 means that nothing has changed."""
        ...

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the weights. Nothing of the old ones remains: the optimiser's moments and the average start over,
        and a reference that has moved (`anchor`) becomes the new weights.
        """
        ...

    def publish(self, target: WeightReceiver, name: str, snapshot: Snapshot) -> None:
        """Publishes a snapshot to whatever plays, as the adapter `name`."""
        ...

    def drop_caches(self) -> None:
        """Drops cached results, so that what follows depends only on the state."""
        ...

    def fingerprint(self) -> bytes:
        """A digest of the weights for ranks to compare: equal only for equal weights."""
        ...

    # --- files -------------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> Snapshot:
        """Weights from an adapter, a run or a checkpoint directory.

        Raises:
            ConfigError: they do not fit this run's; the message says how.
        """
        ...

    def read_run(self, path: Path, most: int, learner: str | None = None) -> dict[str, Snapshot]:
        """At most `most` snapshots of another run by name, spread evenly over its steps, including the newest.

        Args:
            path: the run's directory.
            most: maximum number.
            learner: whose snapshots, if that run has several learners.

        Raises:
            ValueError: there are none, or they do not fit this run's.
        """
        ...

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        """Writes an adapter in mlx-lm's layout; `facts` are stored under `legos` in `adapter_config.json`."""
        ...

    def pack(self, snapshot: Snapshot) -> GroupBytes:
        """A snapshot as a group of tensors for a checkpoint."""
        ...

    def unpack(self, data: bytes, version: int) -> Snapshot:
        """The inverse of `pack`, from the content of the file."""
        ...


class TrainerBackend(WeightStore, Protocol):
    """The weights of one policy, and how they are trained."""

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        """Adds the log-probabilities of the current policy to the batch, for losses that correct for stale samples."""
        ...

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        """Computes the gradient of a batch and keeps it.

        Returns:
            Numbers to log, among them `loss`, `grad_norm` and `finite` (0.0: the gradient is not to be used).
        """
        ...

    def optim_step(self, lr: float) -> None:
        """One optimiser update with the stored gradient, which is then cleared."""
        ...

    def save_state(self) -> BackendState:
        """Everything that the rest of the run depends on."""
        ...

    def load_state(self, groups: Mapping[str, bytes], numbers: Mapping[str, Any]) -> None:
        """Restores `save_state()`, bit for bit; raises ValueError if the state does not belong to this backend.

        Args:
            groups: content of the state's files; there may be others.
            numbers: its numbers; there may be others.
        """
        ...

    def footprint(self) -> Footprint:
        """What it holds in this process, for a dry run."""
        ...
