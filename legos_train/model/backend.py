"""What stands between the training loop and the arrays: `TrainerBackend`, and its implementation on MLX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn

from legos_train.batch import Batch
from legos_train.config import TrainConfig
from legos_train.loss import LossSettings
from legos_train.model.policy import Policy, Weights, clip_grads, loss_and_grad, prepare

if TYPE_CHECKING:
    from legos_train.model.ranks import World
    from legos_train.rollout import Publisher


class TrainerBackend(Protocol):
    """Weights that can be trained, kept and published: what the learner and the loop around it ask for.

    `trainable` gives named arrays that can be added and scaled (MLX arrays, in `MLXBackend`).
    """

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        """Computes the gradient of a batch and keeps it; returns numbers to log.

        Among them `loss`, `grad_norm` and `finite` (1.0 or 0.0: the gradient is not to be used).
        """
        ...

    def optim_step(self, lr: float) -> None:
        """One optimiser update with the gradient kept, which is then gone."""
        ...

    def save(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Writes the adapter in mlx-lm's layout."""
        ...

    def publish(self, target: Publisher, name: str, version: int) -> None:
        """Gives the current weights to whatever plays, under an adapter name."""
        ...

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        """The batch with the log-probabilities of the policy as it is, for losses that correct for stale samples."""
        ...

    def trainable(self) -> Weights:
        """The weights being trained, by mlx-lm's names."""
        ...

    def load(self, weights: Mapping[str, Any]) -> None:
        """Replaces all of them; ValueError where they do not fit."""
        ...

    def anchor(self, weights: Mapping[str, Any] | None) -> None:
        """What the KL penalty is measured against from now on; None: the base model."""
        ...

    def forget_moments(self) -> None:
        """The optimiser begins anew."""
        ...

    def drop_caches(self) -> None:
        """Forgets what was computed before, so that what follows depends on the state alone."""
        ...

    def arrays(self) -> dict[str, Weights]:
        """All arrays of the state, by the name of the checkpoint file they belong in."""
        ...

    def restore(self, arrays: Mapping[str, Weights]) -> None:
        """Comes back to `arrays()`, bit for bit; ValueError where they are of something else."""
        ...


class MLXBackend:
    """LoRA weights on an MLX model, AdamW, one process or several (`world`, see distributed.py)."""

    def __init__(self, model: nn.Module, config: TrainConfig, world: World | None = None):
        self.config, self.world = config, world
        self.policy = Policy(model, config.lora, seed=config.seed, checkpoint_layers=config.optim.checkpoint_layers)
        self._grads: Weights | None = None
        self.forget_moments()

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        """See `TrainerBackend`."""
        _, grads, numbers = loss_and_grad(
            self.policy,
            batch,
            settings,
            max_tokens=self.config.max_batch_tokens,
            policy_version=version,
            world=self.world,
        )
        self._grads = grads
        return numbers

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        """See `TrainerBackend`."""
        return prepare(self.policy, batch, settings, max_tokens=self.config.max_batch_tokens, world=self.world)

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

    def save(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """See `TrainerBackend`; `facts` stand under `legos` in `adapter_config.json`."""
        self.policy.save(folder, {"legos": dict(facts)})

    def publish(self, target: Publisher, name: str, version: int) -> None:
        """See `TrainerBackend`."""
        target.publish(name, self.policy.trainable(), version)

    def trainable(self) -> Weights:
        """See `TrainerBackend`."""
        return self.policy.trainable()

    def load(self, weights: Mapping[str, Any]) -> None:
        """See `TrainerBackend`."""
        self.policy.load(weights)

    def anchor(self, weights: Mapping[str, Any] | None) -> None:
        """See `TrainerBackend`."""
        self.policy.anchor(weights)

    def drop_caches(self) -> None:
        """See `TrainerBackend`."""
        self.policy.clear()

    def forget_moments(self) -> None:
        """The optimiser begins anew: its moments belong to weights that were given up."""
        o = self.config.optim
        self.optimizer = optim.AdamW(  # `init` of one that was used keeps its moments
            learning_rate=o.lr,
            betas=[o.beta1, o.beta2],
            eps=o.eps,
            weight_decay=o.weight_decay,
            bias_correction=True,
        )
        self.optimizer.init(self.policy.trainable())
        mx.eval(self.policy.trainable(), self.optimizer.state)

    # --- state -------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Weights]:
        """All arrays of the state, by the name of the checkpoint file they belong in."""
        return {"adapter": self.policy.trainable(), "optimizer": _flat(self.optimizer.state)}

    def restore(self, arrays: Mapping[str, Weights]) -> None:
        """Comes back to `arrays()`, bit for bit.

        Raises:
            ValueError: they are of another optimiser or other weights.
        """
        self.policy.load(arrays["adapter"])
        if set(_flat(self.optimizer.state)) != set(arrays["optimizer"]):
            raise ValueError("the optimiser state of the checkpoint is of another optimiser or other weights")
        self.optimizer.state = _nested(arrays["optimizer"])


def _flat(state: Mapping[str, Any]) -> Weights:
    """The optimiser's state as named arrays: `WEIGHT/moment`, and its own numbers such as `step`."""
    flat: Weights = {}
    for name, value in state.items():
        flat.update(
            {f"{name}/{part}": array for part, array in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat


def _nested(flat: Mapping[str, mx.array]) -> dict[str, Any]:
    """The opposite of `_flat`. MLX's own `tree_unflatten` would split the weights' names at their dots."""
    state: dict[str, Any] = {}
    for key, array in flat.items():
        name, slash, part = key.partition("/")
        if slash:
            state.setdefault(name, {})[part] = array
        else:
            state[key] = array
    return state
