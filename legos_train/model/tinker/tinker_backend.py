"""The trainer's backend behind the Tinker API: weights, optimiser and sampling are at a service."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from inference.files import tensors
from legos_train.config import TrainConfig
from legos_train.disk import save_adapter
from legos_train.errors import ConfigError, TrainingError
from legos_train.loss import LossSettings, batch_loss, metrics
from legos_train.loss.batch import Batch
from legos_train.model.backend import BackendState, Capabilities, Footprint, GroupBytes, Snapshot
from legos_train.model.tinker.data import SampledSequence, items, spread
from legos_train.model.tinker.probe import ProbeResult, probe
from legos_train.model.tinker.reduction import undone
from legos_train.model.tinker.reference import Reference
from legos_train.model.tinker.sampler import TinkerEngine
from legos_train.model.tinker.service import Service
from legos_train.model.tinker.training import Training
from legos_train.model.tinker.unsupported import check
from legos_train.model.tinker.weights import RemoteWeights
from legos_train.rollout import WeightReceiver

GRAD_NORM = ("grad_norm", "skyrl.ai/grad_norm", "grad_norm:mean")
"""Names of the gradient's norm in a server's answer to a step."""


class TinkerBackend:
    """See `TrainerBackend`.

    Args:
        service: where the weights are.
        config: settings of the run.
        engine: samples there, and provides the base's log-probabilities.
        run: the run's id, a prefix of all saved names.
        vocabulary: the size of the vocabulary.
        prompt: at least eight tokens of the model, to test the service with.

    Raises:
        ConfigError: the service refuses the base, the rank or the loss, or cannot be trained on.
    """

    capabilities = Capabilities(
        exact_kl=False, entropy=False, weight_average=False, own_weights=False, state_at_any_time=False
    )

    def __init__(
        self,
        service: Service,
        config: TrainConfig,
        engine: TinkerEngine,
        *,
        vocabulary: int,
        run: str,
        prompt: Sequence[int],
    ):
        check(config)
        self.service, self.config, self.vocabulary, self.run = service, config, vocabulary, run
        self.mirrored = config.tinker.mirror
        self.found = self._probe(prompt)
        engine.frozen = self.found.frozen
        self.notes = (
            [] if self.found.clips else [f"{service.url} does not clip gradients: optim.grad_clip has no effect"]
        )
        self.reference = Reference(engine)
        self.training = Training(service, config)
        self.training.ask = service.wait
        self._saved = self._updates = 0
        self._now: RemoteWeights | None = None
        self._seen: dict[str, Any] = {}
        self._garbage: deque[str | Training] = deque()
        self._kept: set[str] = set()
        self._states: deque[str] = deque()

    def _probe(self, prompt: Sequence[int]) -> ProbeResult:
        training = Training(self.service, self.config)
        try:
            found = probe(training, prompt[:7], int(prompt[7]))
        finally:
            training.close()
        if not found.frozen and not self.mirrored:
            raise ConfigError(
                f"{self.service.url} changes weights saved for sampling as training continues (tested), so "
                "older weights are evaluated from a copy: give --tinker.mirror, and the base as --model"
            )
        if not found.frozen and self.config.asynchronous.enabled:
            raise ConfigError(
                f"{self.service.url} changes weights saved for sampling as training continues (tested), so "
                "samples taken meanwhile would carry the wrong version: asynchronous.enabled must be off"
            )
        return found

    # --- learning ----------------------------------------------------------------------------------------------------

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        if not settings.needs_start or batch.start_logprobs is not None or not len(batch):
            return batch
        parts = items(batch, batch.old_logprobs, batch.advantages)
        return batch.with_start(spread(self.training.logprobs(parts), parts, len(batch)))

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        """See `TrainerBackend`. The norm of the gradient is known after the step, if the service reports it.

        Raises:
            TrainingError: the service's numbers are not finite: its accumulated gradient would go into its next step.
        """
        batch = self.prepare(batch, settings)
        old, advantages, kl = self._advantages(batch, settings)
        weights = batch.token_weights(settings.aggregation, settings.constant)
        parts = items(batch, old, weights * advantages)
        calls = _filled(parts, self.config.tinker.multiple)
        if np.any(advantages):
            scale = undone(self.found.reduction, [len(part) for part in calls])
            said = self.training.gradient(calls, [part.old for part in calls], scale)
        else:  # a gradient of zeros would stay there, and count when the next one is averaged
            said = self.training.logprobs(calls)
        new = spread(said[: len(parts)], parts, len(batch))
        if not np.isfinite(new).all():
            raise TrainingError(
                f"{self.service.url} gives log-probabilities that are not finite, and a gradient there cannot be taken "
                "back. --resume continues from the last checkpoint; try a smaller learning rate"
            )
        self._seen = {
            "loss": float(np.sum(weights * _loss(new - old, new, advantages, settings))),
            "grad_norm": math.nan if np.any(advantages) else 0.0,
            "finite": 1.0,
            "entropy": float(-new.mean()),
            **metrics(new, batch, settings, version),
        }
        if settings.kl:
            self._seen["kl"] = float(kl.mean())
        return self._seen

    def _advantages(self, batch: Batch, settings: LossSettings) -> tuple[NDArray, NDArray, NDArray]:
        """The denominators of ratios, the advantages including corrections and KL, and its k3, each (M,)."""
        start = batch.old_logprobs if batch.start_logprobs is None else batch.start_logprobs
        gap = batch_loss.start_gap(start, batch, settings)
        advantages = batch.advantages * batch_loss.correction(gap, batch, settings)
        old = batch.old_logprobs.astype(np.float64) if settings.truncate_ratio is None else start.astype(np.float64)
        k3 = np.zeros(len(batch))
        if settings.kl:
            parts = items(batch, batch.old_logprobs, np.zeros(len(batch)))
            away = spread(self.reference.logprobs(parts), parts, len(batch)).astype(np.float64) - start
            k3 = np.expm1(away) - away
            advantages = advantages + settings.kl * np.expm1(away)  # its gradient is (1 - q / p) times that of log p
        stays = batch_loss.turn_mask(gap, batch, settings)
        return np.where(stays > 0, old, start), advantages * stays, k3

    def optim_step(self, lr: float) -> None:
        o = self.config.optim
        said = self.training.step(
            lr,
            beta1=o.beta1,
            beta2=o.beta2,
            eps=o.eps,
            weight_decay=o.weight_decay,
            grad_clip_norm=o.grad_clip,
        )
        self._updates += 1
        self._now = None
        for name in GRAD_NORM:
            if name in said:
                self._seen["grad_norm"] = said[name]

    def anchor(self, reference: Snapshot | None) -> None:
        """See `TrainerBackend`; only the base."""
        if reference is not None:
            self._cannot("loss.magnet_every")

    def fold_average(self, step: int) -> None:
        """See `TrainerBackend`; there is no average."""

    # --- references --------------------------------------------------------------------------------------------------

    def snapshot(self, version: int) -> Snapshot:
        """See `TrainerBackend`. Weights are saved when first referenced."""
        if self._now is None:
            self._sweep()
            self._saved += 1
            path = self.training.save_for_sampling(f"{self.run}-{self._updates}-{self._saved}")
            self._now = self._weights(path)
        return Snapshot(version, self._now)

    def average(self, version: int) -> Snapshot:
        return self.snapshot(version)

    def distance(self, before: Snapshot) -> float:
        """See `TrainerBackend`; NaN if the weights have moved and are not local."""
        weights: RemoteWeights = before.content
        if weights is self._now:
            return 0.0
        now = self._now
        if now is None or not (now.here and weights.here):
            return math.nan
        return max(float(mx.max(mx.abs(now[name] - value)).item()) for name, value in weights.items())  # type: ignore[arg-type]

    def load(self, snapshot: Snapshot) -> None:
        self._cannot("restoring other weights (monitor.action = 'rollback')")

    def publish(self, target: WeightReceiver, name: str, snapshot: Snapshot) -> None:
        target.publish(name, snapshot.content, snapshot.version)

    def drop_caches(self) -> None:
        self.reference.clear()

    def fingerprint(self) -> bytes:
        return str(self.snapshot(0).content.path).encode()

    def _weights(self, path: str, state: str | None = None) -> RemoteWeights:
        freeze = None if self.found.frozen else self._freeze
        weights = RemoteWeights(path, self.service.archive, self.config.lora.scale, freeze, state)
        weakref.finalize(weights, self._garbage.append, path).atexit = False
        return weights

    def _freeze(self, weights: RemoteWeights) -> str:
        """A copy in a separate model, for services that keep training saved weights."""
        if weights.state is None:
            if weights is not self._now:
                raise TrainingError("weights can be copied only before the next step")
            self._saved += 1
            weights.state = self.training.save_state(f"{self.run}-copy-{self._saved}")
        copy = Training(self.service, self.config, weights.state, self.service.wait)
        weakref.finalize(weights, self._garbage.append, copy).atexit = False
        return copy.save_for_sampling("copy")

    def _sweep(self) -> None:
        """Deletes what is no longer referenced, unless a checkpoint may need it."""
        while self._garbage:
            gone = self._garbage.popleft()
            if isinstance(gone, Training):
                gone.close()
            elif gone not in self._kept:
                self.service.discard(gone)

    # --- files -------------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> Snapshot:
        self._cannot("init_adapter")

    def read_run(self, path: Path, most: int, learner: str | None = None) -> dict[str, Snapshot]:
        self._cannot("league.pool_from")

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        """See `TrainerBackend`. The matrices are fetched for it; if that fails, only the path is written."""
        weights: RemoteWeights = snapshot.content
        try:
            matrices = weights.matrices
        except TrainingError:
            if self.mirrored:
                raise
            matrices = {}
            self._kept.add(weights.path)  # nothing else references these weights
        config = {
            "fine_tune_type": "lora",
            "num_layers": -1,
            "lora_parameters": {
                "rank": self.config.lora.rank,
                "scale": self.config.lora.scale,
                "dropout": 0.0,
                "keys": sorted({name.split(".", 3)[3].rpartition(".")[0] for name in matrices}),
            },
            "legos": {**facts, "tinker": weights.path},
        }
        save_adapter(folder, matrices, config)

    def save_state(self) -> BackendState:
        """See `TrainerBackend`. The service keeps one state per checkpoint, and one more."""
        groups: dict[str, GroupBytes] = {}
        if self.mirrored:
            groups["adapter"] = partial(tensors.to_bytes, self.snapshot(0).content.matrices)
        self._saved += 1
        state = self.training.save_state(f"{self.run}-state-{self._saved}")
        self._states.append(state)
        while len(self._states) > self.config.checkpoint.keep + 1:
            self.service.discard(self._states.popleft())
        return BackendState(groups, {"tinker": {"state": state}})

    def load_state(self, groups: Mapping[str, bytes], numbers: Mapping[str, Any]) -> None:
        told = numbers.get("tinker")
        if told is None:
            raise ValueError("the checkpoint is not of a run with --backend tinker")
        self.training.close()
        self.training = Training(self.service, self.config, told["state"], self.service.wait)
        self._states.append(told["state"])
        self._now = None

    def pack(self, snapshot: Snapshot) -> GroupBytes:
        """See `TrainerBackend`: paths, as bytes."""
        weights: RemoteWeights = snapshot.content
        self._kept.add(weights.path)
        told = {name: text for name, text in (("path", weights.path), ("state", weights.state)) if text}
        return partial(tensors.to_bytes, {name: np.frombuffer(text.encode(), np.uint8) for name, text in told.items()})

    def unpack(self, data: bytes, version: int) -> Snapshot:
        told = {name: one.values.tobytes().decode() for name, one in tensors.parse(data).tensors.items()}
        self._kept.add(told["path"])
        return Snapshot(version, self._weights(told["path"], told.get("state")))

    def footprint(self) -> Footprint:
        """See `TrainerBackend`: nothing is in this process."""
        return Footprint(0, 0, 0)

    def _cannot(self, what: str) -> NoReturn:
        raise ConfigError(f"not supported by this backend: {what}")


def _loss(gap: NDArray, new: NDArray, advantages: NDArray, settings: LossSettings) -> NDArray:
    """The loss of each token (M,), from `new - old`."""
    with np.errstate(over="ignore"):
        ratio = np.exp(gap)
    clipped = np.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    holds = settings.token_loss.holds
    if holds == "outside":
        return -clipped * advantages * new
    return -np.minimum(ratio * advantages, clipped * advantages) if holds == "pushed" else -ratio * advantages


def _filled(parts: list[SampledSequence], multiple: int) -> list[SampledSequence]:
    """The sequences padded to a multiple with copies of the first that have no advantage."""
    return [*parts, *[parts[0].silent] * (-len(parts) % multiple)]
