"""What a trainer needs of whatever holds the weights: `TrainerBackend`. `mlx_backend.py` implements it on MLX.

Weights leave a backend as references only, so the next backend, on another library or another machine, is a new file
and nothing in `run/` or `league/` changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from legos_train.batch import Batch
from legos_train.loss import LossSettings
from legos_train.rollout import WeightReceiver

ROUNDING = 3.0
"""Nats that half precision may take or give a token."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do beside policy gradients; a config that needs more is refused before the first step."""

    exact_kl: bool = True
    """KL over whole distributions (`loss.kl_estimator = "exact"`), not only from sampled tokens."""
    entropy: bool = True
    """An entropy bonus (`loss.entropy`), and a price for illegal answers (`loss.legality`)."""
    weight_average: bool = True
    """Averages of weights over steps (`average.kind`)."""
    own_weights: bool = True
    """Weights from files (`init_adapter`, `league.pool_from`), and a reference that moves (`loss.magnet_every`)."""
    state_at_any_time: bool = True
    """Its state is taken without cost after every step; else only when it is written."""
    rounding: float = ROUNDING
    """By how many nats an engine may differ from it about a token, by rounding alone; see `sampling.max_mismatch`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A reference to weights that no longer change. Only the backend that made it looks inside.

    Attributes:
        version: optimiser steps in the weights.
        content: arrays, or a path on a server, as the backend keeps them.
    """

    version: int
    content: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BackendState:
    """What a checkpoint keeps of a backend: groups of tensors, a file each, and numbers as JSON has them."""

    tensors: dict[str, Any]
    numbers: dict[str, Any]


class TrainerBackend(Protocol):
    """Weights that are trained, averaged, kept and published."""

    capabilities: Capabilities
    vocabulary: int
    """How many tokens the model knows."""
    notes: list[str]
    """What whoever starts the run should know."""

    # --- learning ----------------------------------------------------------------------------------------------------

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        """The batch with the log-probabilities of the policy as it is, for losses that correct for stale samples."""
        ...

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        """Computes the gradient of a batch and keeps it.

        Returns:
            Numbers to log, among them `loss`, `grad_norm` and `finite` (0.0: the gradient is not to be used).
        """
        ...

    def optim_step(self, lr: float) -> None:
        """One optimiser update with the gradient kept, which is then gone."""
        ...

    def anchor(self, reference: Snapshot | None) -> None:
        """What the KL penalty is measured against from now on; None: the base model."""
        ...

    def fold_average(self, step: int) -> None:
        """Takes the weights after `step` into their average, as `average` in the config says."""
        ...

    # --- references --------------------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        """The weights as they are now."""
        ...

    def average(self, version: int) -> Snapshot:
        """The weight average so far; the weights as they are now where there is none."""
        ...

    def distance(self, before: Snapshot) -> float:
        """The largest absolute change of any weight since `before`; 0.0 means that nothing has moved."""
        ...

    def load(self, snapshot: Snapshot) -> None:
        """Replaces the weights. Nothing of those given up stays: the optimiser's moments and the average begin anew,
        and a reference that has moved (`anchor`) becomes the new weights.
        """
        ...

    def publish(self, target: WeightReceiver, name: str, snapshot: Snapshot) -> None:
        """Gives a snapshot to whatever plays, as the adapter `name`."""
        ...

    def drop_caches(self) -> None:
        """Forgets what was computed before, so that what follows depends on the state alone."""
        ...

    def fingerprint(self) -> bytes:
        """The weights as bytes that are equal only where the weights are, for ranks to compare."""
        ...

    # --- files -------------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> Snapshot:
        """Weights from an adapter, a run or a checkpoint directory.

        Raises:
            ConfigError: they do not fit this run's; the message says how.
        """
        ...

    def read_run(self, path: Path, most: int, learner: str | None = None) -> dict[str, Snapshot]:
        """At most `most` snapshots of another run by name, evenly over its course, the newest among them.

        Args:
            path: the run's directory.
            most: at most so many.
            learner: whose, where that run has several learners.

        Raises:
            ValueError: there are none, or they do not fit this run's.
        """
        ...

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        """Writes an adapter in mlx-lm's layout; `facts` stand under `legos` in `adapter_config.json`."""
        ...

    def save_state(self) -> BackendState:
        """Everything that what comes next depends on."""
        ...

    def load_state(self, state: BackendState) -> None:
        """Comes back to `save_state()`, bit for bit; ValueError where it is of something else."""
        ...

    def pack(self, snapshot: Snapshot) -> Any:
        """A snapshot as a group of tensors for a checkpoint."""
        ...

    def unpack(self, tensors: Any, version: int) -> Snapshot:
        """The inverse of `pack`."""
        ...
