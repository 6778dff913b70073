"""The policy being trained: a shared base model plus its own LoRA weights.

policy = LoRAPolicy(model, sections.LoRASettings(rank=16), seed=0)
loss, grads, numbers = loss_and_grad(policy, batch, LossSettings())
policy.load(optimizer.apply_gradients(grads, policy.trainable()))
policy.save("adapters/step_1")
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from numpy.typing import NDArray

from inference import UnsupportedModel, recurrence
from inference.adapters import narrowest
from inference.forward import fastmath
from legos_train.config import sections
from legos_train.disk import save_adapter
from legos_train.errors import ConfigError
from legos_train.loss import SiteStates, distribution, sites_at_once
from legos_train.loss.batch import Batch
from legos_train.model import recompute
from legos_train.model.backend import FULL_ROW_VOCABULARY
from legos_train.model.logprob_cache import LogprobCache
from legos_train.model.lora import Switch, Weights, add_lora, share
from legos_train.model.recompute import Outcome
from legos_train.model.recomputed_layers import recompute_layers
from legos_train.model.site_logits import SiteLogits, prefix_of, probe_batch

EAGER_WIDTH = 192
"""Up to this many channels, exponentials take so much of a step that those of fastmath.py save time in a gradient."""
EAGER_STATES = 1 << 18
"""Up to this many numbers in the residual stream, of all tokens and blocks, 70 MB; beyond, no time was saved."""
EAGER_SHARE = 0.75
"""Up to this share of a batch's tokens, if the others are a shared prefix: fastmath.py's functions in a gradient
take three times the memory of one graph, up to 1.2 times mlx-lm's for the same tokens (see `benchmarks.learner`).
"""


class LoRAPolicy:
    """Base model + LoRA. `model` is any mlx-lm model; it is not changed and its arrays are not copied.

    `seed` alone determines the initial LoRA weights.
    `checkpoint_layers` recomputes each block in the backward pass instead of keeping its activations: less memory, more
    time, the same gradients; a note says so if a model's layers do not allow it. On the
    CPU `mx.compile` is switched off for the process: there it compiles C++ for every new shape and gains nothing.
    Dropout stays off.

    Raises:
        ConfigError: the model has no such layers as `lora` wants.
        UnsupportedModel: LoRA layers do not fit the model's code, or it has no gradient on this device.
    """

    def __init__(
        self,
        model: nn.Module,
        lora: sections.LoRASettings | None = None,
        *,
        seed: int = 0,
        checkpoint_layers: bool = False,
    ) -> None:
        if mx.default_device().type == mx.DeviceType.cpu:
            mx.disable_compile()
        recurrence.install()
        self.lora = lora or sections.LoRASettings()
        self._switch = Switch()
        self.model = share(model)
        self._anchor: Weights | None = None
        self._cache = LogprobCache()
        self.checkpoint_layers = checkpoint_layers
        try:
            self.keys = add_lora(self.model, self.lora, seed, self._switch)
            self.logits = SiteLogits(self.model)
            sites = self.logits.path == "sites"
            self._width = int(self.model.model.norm.weight.shape[0]) if sites else 0
            self.vocabulary, self.notes = self.logits.vocabulary, self.logits.notes
            self._probe_gradient()
        except ConfigError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedModel(
                f"{type(model).__module__} cannot be trained with LoRA on this device: {type(error).__name__}: {error}"
            ) from error
        if checkpoint_layers and not sites:
            tolerance = 1e-4 if narrowest(self.model) == mx.float32 else 5e-2
            if why := recompute_layers(self.model, lambda: self._gradient_of(probe_batch()), tolerance):
                self.notes.append(f"checkpoint_layers {why}, so it has no effect")

    def trainable(self) -> Weights:
        """The LoRA weights by mlx-lm's names, `model.layers.0.self_attn.q_proj.lora_a` and so on."""
        return dict(tree_flatten(self.model.trainable_parameters()))

    def load(self, weights: Mapping[str, mx.array]) -> None:
        """Replaces all LoRA weights.

        Raises ValueError, and changes nothing, for a wrong name or shape or a value that is not finite.
        """
        checked = self.check(weights)
        self.model.update(tree_unflatten(list(checked.items())))

    def check(self, weights: Mapping[str, mx.array]) -> Weights:
        """The weights in the order and type of the policy's own.

        Raises:
            ValueError: a name or shape is wrong, or a value is not finite.
        """
        own = self.trainable()
        if missing := sorted(set(own) - set(weights)):
            raise ValueError(f"{len(missing)} LoRA weights are missing, such as {missing[0]!r}")
        if unknown := sorted(set(weights) - set(own)):
            raise ValueError(f"{len(unknown)} weights are not this policy's LoRA weights, such as {unknown[0]!r}")
        for name, array in weights.items():
            if array.shape != own[name].shape:
                raise ValueError(f"{name} has shape {array.shape}, this policy's is {own[name].shape}")
        out = {name: weights[name].astype(own[name].dtype) for name in own}
        finite = [mx.all(mx.isfinite(array)) for array in out.values()]
        mx.eval(out, finite)
        if bad := [name for name, good in zip(out, finite, strict=True) if not good.item()]:
            raise ValueError(f"{len(bad)} LoRA weights have values that are not finite, such as {bad[0]!r}")
        return out

    def save(
        self,
        folder: str | os.PathLike[str],
        extra_config: Mapping[str, Any] | None = None,
        weights: Weights | None = None,
    ) -> None:
        """Writes an adapter that `mlx_lm.load(base, adapter_path=folder)` reads; both files change in one step.

        Args:
            folder: created if missing.
            extra_config: more keys of `adapter_config.json`.
            weights: weights to write instead of the current ones.
        """
        config = {
            "fine_tune_type": "lora",
            "num_layers": self.lora.layers or len(self.model.layers),
            "lora_parameters": {
                "rank": self.lora.rank,
                "scale": self.lora.scale,
                "dropout": 0.0,
                "keys": self.keys,
            },
            **(extra_config or {}),
        }
        save_adapter(folder, self.trainable() if weights is None else weights, config)

    def forward(self, batch: Batch) -> mx.array:
        """Logits (K, V) at the sites of the batch."""
        return self.logits(batch)

    def logprobs(self, batch: Batch, *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Log-probabilities (M,) of the sampled tokens under the current policy, without a gradient.

        `max_tokens` bounds the tokens computed at once, as in `loss_and_grad`.
        """
        out = np.empty(len(batch), dtype=np.float32)
        for part, places in batch.parts(max_tokens):
            out[places] = np.array(self.logits.states(part).sampled(part))
        return out

    def value_and_grad(self, batch: Batch, compute: Callable[[SiteStates], Outcome]) -> tuple[Outcome, Weights]:
        """`compute` maps states at the sites to a loss and a dict of arrays; both, and the gradient by weight name."""
        if self.checkpoint_layers and self.logits.path == "sites":
            finish = lambda hidden: compute(SiteStates(hidden, self.logits.head, self.vocabulary))  # noqa: E731
            return recompute.value_and_grad(self.model, batch, prefix_of(batch), finish, lazily=not self.fits(batch))
        with nullcontext() if self._eager(batch) else fastmath.lazily():
            outcome, tree = nn.value_and_grad(self.model, lambda: compute(self.logits.states(batch)))()
        return outcome, dict(tree_flatten(tree))

    def fits(self, batch: Batch) -> bool:
        """Whether the logits of all sites are computed at once."""
        return len(batch.rows) <= sites_at_once(self.vocabulary)

    def _eager(self, batch: Batch) -> bool:
        """Whether numpy's exponentials, which evaluate the graph while it is built, pay for this gradient."""
        prefix = prefix_of(batch)
        tokens = batch.distinct_rows * (batch.tokens.shape[1] - prefix) + prefix
        small = tokens * len(self.model.layers) * self._width <= EAGER_STATES
        narrow = 0 < self._width <= EAGER_WIDTH and self.fits(batch)
        return narrow and small and tokens <= EAGER_SHARE * batch.tokens.size

    def _probe_gradient(self) -> None:
        """Takes one gradient, of a few tokens: a kernel may have none, and then says so only when asked."""
        gradient = self._gradient_of(probe_batch(rows=1))
        if bad := [name for name, g in gradient.items() if not mx.all(mx.isfinite(g)).item()]:
            raise ArithmeticError(f"the gradient of a few tokens is not finite, such as that of {bad[0]!r}")

    def _gradient_of(self, batch: Batch) -> Weights:
        return self.value_and_grad(batch, lambda states: (states.logits().logsumexp(-1).mean(), {}))[1]

    def anchor(self, weights: Mapping[str, mx.array] | None) -> None:
        """Measures KL from these LoRA weights (a moving reference); None, the initial state: from the base model."""
        self._anchor = None if weights is None else self.check(weights)
        self.clear()

    def anchor_weights(self) -> Weights | None:
        """The weights last given to `anchor`, to keep in a checkpoint. None: the base model."""
        return None if self._anchor is None else dict(self._anchor)

    def clear(self) -> None:
        """Drops the cached reference log-probabilities. Needed after a change to the base model's arrays."""
        self._cache.clear()

    def reference(self, batch: Batch, *, full: bool = True, base: float = 0.0) -> mx.array:
        """Log-probabilities of the reference policy: (K, V) at the sites, or with `full=False` (M,) at the sampled
        tokens. Results for equal contexts are cached, except whole distributions over
        more than `FULL_ROW_VOCABULARY` tokens.

        base: the share of the base model in a moved reference; the same in every call between two `anchor`.
        """
        whole = full or self.vocabulary <= FULL_ROW_VOCABULARY
        compute = partial(self._reference_logprobs, base=base, whole=whole)
        if self.vocabulary <= FULL_ROW_VOCABULARY:
            rows = self._cache.rows(batch, compute)
            return rows if full else rows[mx.array(batch.position), mx.array(batch.target)]
        return compute(batch) if full else self._cache.chosen(batch, compute)

    def _reference_logprobs(self, batch: Batch, base: float, whole: bool) -> mx.array:
        logprobs = self._logprobs_of(batch, self._anchor, whole)
        if base and self._anchor is not None:
            first = self._logprobs_of(batch, None, whole)
            logprobs = mx.logaddexp(logprobs + math.log1p(-base), first + math.log(base))
            mx.eval(logprobs)
        return logprobs

    def _logprobs_of(self, batch: Batch, weights: Weights | None, whole: bool) -> mx.array:
        """Under other LoRA weights; None: of the base model. (K, V), or unless `whole`, of the sampled tokens, (M,)."""
        with self._without_adapter() if weights is None else self._with(weights):
            states = self.logits.states(batch)
            logprobs = distribution(states.logits().astype(mx.float32))[0] if whole else states.sampled(batch)
            mx.eval(logprobs)
        return logprobs

    @contextmanager
    def _without_adapter(self) -> Iterator[None]:
        self._switch.on = False
        try:
            yield
        finally:
            self._switch.on = True

    @contextmanager
    def _with(self, weights: Weights) -> Iterator[None]:
        current = self.trainable()
        self.model.update(tree_unflatten(list(weights.items())))
        try:
            yield
        finally:
            self.model.update(tree_unflatten(list(current.items())))
