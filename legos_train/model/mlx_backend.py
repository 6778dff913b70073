"""The trainer's backend on MLX: LoRA weights on a model in this process, AdamW, their average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

from inference.adapters import narrowest
from inference.files import adapter_folder, tensors
from legos_train.config import TrainConfig
from legos_train.disk import bases
from legos_train.errors import ConfigError, TrainingError
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch
from legos_train.model.backend import ROUNDING, BackendState, Capabilities, Footprint, GroupBytes, Snapshot
from legos_train.model.gradients import clip_grads, loss_and_grad, prepare
from legos_train.model.lora import Weights
from legos_train.model.other_run import rescaled, snapshots_for
from legos_train.model.policy import LoRAPolicy
from legos_train.model.ranks import World
from legos_train.model.weight_average import WeightAverage
from legos_train.rollout import WeightReceiver
from legos_train.rollout.players import words


class MLXBackend:
    """See `TrainerBackend`. With a `world` it is one of several ranks, which share every gradient (ranks.py)."""

    capabilities = Capabilities()

    def __init__(self, model: nn.Module, config: TrainConfig, world: World | None = None):
        self.config, self.world = config, world
        self.capabilities = replace(self.capabilities, rounding=_rounding(model))
        self.policy = LoRAPolicy(model, config.lora, seed=config.seed, checkpoint_layers=config.optim.checkpoint_layers)
        self.vocabulary, self.notes = self.policy.vocabulary, self.policy.notes
        self._grads: Weights | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Starts an average and an optimiser from the current weights."""
        self._average = WeightAverage(self.config.average, self.config.steps, self.policy.trainable())
        o = self.config.optim
        self.optimizer = optim.AdamW(  # `init` on a used one would keep its moments
            learning_rate=o.lr,
            betas=[o.beta1, o.beta2],
            eps=o.eps,
            weight_decay=o.weight_decay,
            bias_correction=True,
        )
        self.optimizer.init(self.policy.trainable())
        mx.eval(self.policy.trainable(), self.optimizer.state)

    # --- learning ----------------------------------------------------------------------------------------------------

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        return prepare(self.policy, batch, settings, max_tokens=self.config.max_batch_tokens, world=self.world)

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        if not self.policy.trainable():
            raise TrainingError(
                f"step {version + 1}: no LoRA weight is trainable (all are frozen), so nothing would change"
            )
        _, self._grads, numbers = loss_and_grad(
            self.policy,
            batch,
            settings,
            max_tokens=self.config.max_batch_tokens,
            policy_version=version,
            world=self.world,
        )
        return numbers

    def optim_step(self, lr: float) -> None:
        """See `TrainerBackend`. The gradient is clipped to `optim.grad_clip` first.

        Raises:
            RuntimeError: no gradient was computed since the last update.
        """
        if self._grads is None:
            raise RuntimeError("optim_step needs a gradient: call forward_backward first")
        clipped, _ = clip_grads(self._grads, self.config.optim.grad_clip)
        self._grads = None
        self.optimizer.learning_rate = lr
        self.policy.load(self.optimizer.apply_gradients(clipped, self.policy.trainable()))
        mx.eval(self.policy.trainable(), self.optimizer.state)

    def anchor(self, reference: Snapshot | None) -> None:
        self.policy.anchor(None if reference is None else reference.content)

    def fold_average(self, step: int) -> None:
        self._average.fold(step, self.policy.trainable())

    # --- references --------------------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot(version, self.policy.trainable())

    def average(self, version: int) -> Snapshot:
        average = self._average.value()
        return self.snapshot(version) if average is None else Snapshot(version, average)

    def distance(self, before: Snapshot) -> float:
        now = self.policy.trainable()
        changes = mx.stack([mx.max(mx.abs(now[name] - value)) for name, value in before.content.items()])
        return float(np.asarray(mx.max(changes)))

    def load(self, snapshot: Snapshot) -> None:
        self.policy.load(snapshot.content)
        if self.policy.anchor_weights() is not None:
            self.policy.anchor(snapshot.content)
        self._begin_anew()

    def publish(self, target: WeightReceiver, name: str, snapshot: Snapshot) -> None:
        mx.eval(snapshot.content)  # the receiver may use it in another thread, where nothing lazy can be evaluated
        target.publish(name, snapshot.content, snapshot.version)

    def drop_caches(self) -> None:
        self.policy.clear()

    def fingerprint(self) -> bytes:
        return tensors.to_bytes(self.policy.trainable())

    # --- files -------------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> Snapshot:
        if adapter_folder.is_adapter(path):
            bases.check_adapter(folder := path, self.config.model)
        else:
            base, found = ("", None) if words.is_code(str(path)) else words.locate(str(path))
            if found is None:
                raise ConfigError(
                    f"init_adapter {str(path)!r} has no adapter; give a run (with @last, @best or @step_N), an adapter "
                    "directory or a checkpoint of a run"
                )
            bases.check_same(base, self.config.model, f"init_adapter {str(path)!r}")
            folder = found
        weights, scale, version = words.read_weights(folder)
        if scale != self.config.lora.scale:
            weights = rescaled(weights, scale / self.config.lora.scale)
        try:
            self.policy.check(weights)
        except ValueError as error:
            raise ConfigError(
                f"init_adapter {str(path)!r} does not fit this run's adapter: {error}; set the same lora.rank, "
                "lora.layers and lora.targets"
            ) from error
        return Snapshot(version, weights)

    def read_run(self, path: Path, most: int, learner: str | None = None) -> dict[str, Snapshot]:
        chosen = snapshots_for(path, most, self.policy.trainable(), self.config.lora.scale, learner)
        return {name: Snapshot(0, weights) for name, weights in chosen.items()}

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        self.policy.save(folder, {"legos": dict(facts)}, weights=snapshot.content)

    def _state(self) -> dict[str, Weights]:
        groups = {
            "adapter": self.policy.trainable(),
            "optimizer": _flat(self.optimizer.state),
            "average": dict(self._average.weights),
        }
        if (magnet := self.policy.anchor_weights()) is not None:
            groups["magnet"] = magnet
        return groups

    def save_state(self) -> BackendState:
        groups = {name: partial(tensors.to_bytes, arrays) for name, arrays in self._state().items()}
        return BackendState({**groups}, {"average_weight": self._average.total})

    def load_state(self, groups: Mapping[str, bytes], numbers: Mapping[str, Any]) -> None:
        self.policy.load(tensors.from_bytes(groups["adapter"]))
        optimizer = tensors.from_bytes(groups["optimizer"])
        if set(_flat(self.optimizer.state)) != set(optimizer):
            raise ValueError("the optimiser state of the checkpoint is for another optimiser or other weights")
        self.optimizer.state = _nested(optimizer)
        self._average.weights, self._average.total = tensors.from_bytes(groups["average"]), numbers["average_weight"]
        if "magnet" in groups:
            self.policy.anchor(tensors.from_bytes(groups["magnet"]))

    def pack(self, snapshot: Snapshot) -> GroupBytes:
        return partial(tensors.to_bytes, dict(snapshot.content))

    def unpack(self, data: bytes, version: int) -> Snapshot:
        return Snapshot(version, tensors.from_bytes(data))

    def footprint(self) -> Footprint:
        leaves: Any = tree_flatten(self.policy.model.parameters())
        trained = self.policy.trainable()
        return Footprint(
            base=sum(array.nbytes for _, array in leaves) - _nbytes(trained),
            state=sum(_nbytes(arrays) for arrays in self._state().values()),
            weights=sum(array.size for array in trained.values()),
        )


def _nbytes(arrays: Weights) -> int:
    return sum(array.nbytes for array in arrays.values())


def _rounding(model: nn.Module) -> float:
    """Observed: below 1e-4 nats in float32 on a CPU and 0.3 in half precision; GPUs round float32 too."""
    exact = narrowest(model) == mx.float32 and mx.default_device().type == mx.DeviceType.cpu
    return 0.1 if exact else ROUNDING


def _flat(state: Mapping[str, Any]) -> Weights:
    """The optimiser's state as named arrays: `WEIGHT/moment`, and its own numbers such as `step`."""
    flat: Weights = {}
    for name, value in state.items():
        flat |= {f"{name}/{part}": array for part, array in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _nested(flat: Mapping[str, mx.array]) -> dict[str, Any]:
    """The inverse of `_flat`. MLX's own `tree_unflatten` would split the weights' names at their dots."""
    state: dict[str, Any] = {}
    for key, array in flat.items():
        name, slash, part = key.partition("/")
        if slash:
            state.setdefault(name, {})[part] = array
        else:
            state[key] = array
    return state
