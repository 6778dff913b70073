"""The policy being trained: a shared base model plus its own LoRA weights.

    policy = LoRAPolicy(model, sections.LoRASettings(rank=16), seed=0)
    loss, grads, numbers = loss_and_grad(policy, batch, LossSettings())
    policy.load(optimizer.apply_gradients(grads, policy.trainable()))
    policy.save("adapters/step_1")

There are four ways to compute the logits at the sites of a batch; the constructor tries them on a few tokens and keeps
the first that matches the model (`policy.path`; `policy.notes` says why faster ones were rejected):

* `"sites"` (decoder.py): shared prefix once, last block and head at the sites only;
* `"prefix"` (shared_prefix.py): shared prefix once, head at the sites only; any model that keeps plain keys and values;
* `"body"`: the whole model on every token, except for the head, which sees the sites only; any model whose body and
  head can be told apart, such as those with recurrent states;
* `"plain"`: the whole model on every token.

With `"prefix"` and `"body"` the last feed-forward part sees only the sites, too, if that matches.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from numpy.typing import NDArray

from inference import UnsupportedModel, recurrence
from inference.forward import fastmath, seam
from legos_envs.records import Episode, Trajectory, Turn
from legos_train.batch import Batch, pack
from legos_train.config import sections
from legos_train.disk import save_adapter
from legos_train.loss import distribution
from legos_train.model import recompute
from legos_train.model.backend import FULL_ROW_VOCABULARY
from legos_train.model.decoder import site_hidden
from legos_train.model.last_feed_forward import at_sites
from legos_train.model.logprob_cache import LogprobCache
from legos_train.model.lora import Switch, Weights, add_lora, share
from legos_train.model.recompute import Outcome
from legos_train.model.shared_prefix import has_plain_cache, hidden_states
from legos_train.model.training_mode import modules_that_ask, set_training

EAGER_WIDTH = 192
"""Up to this many channels, exponentials take so much of a step that those of fastmath.py save time in a gradient."""
EAGER_STATES = 1 << 18
"""Up to this many numbers in the residual stream, of all tokens and blocks, 70 MB; beyond, no time was saved."""
EAGER_SHARE = 0.75
"""Up to this share of a batch's tokens, if the others are a shared prefix: fastmath.py's functions in a gradient
take three times the memory of one graph, up to 1.2 times mlx-lm's for the same tokens (see `benchmarks.learner`).
"""
MIN_PREFIX = 8  # a shorter prefix saves less than the second pass through the layers costs


class LoRAPolicy:
    """Base model + LoRA. `model` is any mlx-lm model; it is not changed and its arrays are not copied.

    `seed` alone determines the initial LoRA weights.
    `checkpoint_layers` recomputes each block in the backward pass instead of keeping its activations: less memory, more
    time, the same gradients (only with path `"sites"`; a note reports it if another path is taken). On the
    CPU `mx.compile` is switched off for the process: there it compiles C++ for every new shape and gains nothing.
    Modules whose gradient needs it are in training mode (training_mode.py); dropout stays off.

    Raises:
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
            self.path = self._probe()
            self._width = int(self.model.model.norm.weight.shape[0]) if self.path == "sites" else 0
            self._probe_gradient()
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedModel(
                f"{type(model).__module__} cannot be trained with LoRA on this device: {type(error).__name__}: {error}"
            ) from error
        if checkpoint_layers and self.path != "sites":
            self.notes.append(f"checkpoint_layers has no effect: path {self.path!r} keeps all activations")

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
            "num_layers": len(self.model.layers),
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
        return self._forward(batch, self.path)

    def logprobs(self, batch: Batch, *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Log-probabilities (M,) of the sampled tokens under the current policy, without a gradient.

        `max_tokens` bounds the tokens computed at once, as in `loss_and_grad`.
        """
        out = np.empty(len(batch), dtype=np.float32)
        for part, places in batch.parts(max_tokens):
            logprobs, _ = distribution(self.forward(part).astype(mx.float32))
            out[places] = np.array(logprobs[mx.array(part.position), mx.array(part.target)])
        return out

    def value_and_grad(self, batch: Batch, compute: Callable[[mx.array], Outcome]) -> tuple[Outcome, Weights]:
        """`compute` maps the logits (K, V) to a loss and a dict of arrays; both, and the gradient by weight name."""
        if self.checkpoint_layers and self.path == "sites":
            return recompute.value_and_grad(self.model, batch, _prefix(batch), lambda h: compute(self._head(h)))
        with nullcontext() if self._eager(batch) else fastmath.lazily():
            outcome, tree = nn.value_and_grad(self.model, lambda: compute(self.forward(batch)))()
        return outcome, dict(tree_flatten(tree))

    def _eager(self, batch: Batch) -> bool:
        """Whether numpy's exponentials, which evaluate the graph while it is built, pay for this gradient."""
        prefix = _prefix(batch)
        tokens = batch.distinct_rows * (batch.tokens.shape[1] - prefix) + prefix
        small = tokens * len(self.model.layers) * self._width <= EAGER_STATES
        return 0 < self._width <= EAGER_WIDTH and small and tokens <= EAGER_SHARE * batch.tokens.size

    def _forward(self, batch: Batch, path: str) -> mx.array:
        prefix = _prefix(batch)
        if path == "sites":
            return self._head(site_hidden(self.model, batch, prefix))
        tokens, rows, cols = mx.array(batch.tokens), mx.array(batch.rows), mx.array(batch.cols)
        if path == "prefix":
            with self._last_part(self.model.model, rows, cols - prefix):
                hidden = hidden_states(self.model.model, len(self.model.layers), tokens, prefix)
            return self._head(hidden[rows, cols - prefix])
        if path == "body":
            apart = seam(self.model)
            if apart is None:
                raise TypeError("its body and its head cannot be told apart")
            body, head = apart
            with self._last_part(body, rows, cols):
                hidden = body(tokens)
            return head(hidden[rows, cols][None])[0]
        return self.model(tokens)[rows, cols]

    def _last_part(self, body: Any, rows: mx.array, columns: mx.array) -> AbstractContextManager[None]:
        return at_sites(body, rows, columns) if self.trims else nullcontext()

    def _head(self, hidden: mx.array) -> mx.array:
        if "lm_head" in self.model:
            return self.model.lm_head(hidden)
        return self.model.model.embed_tokens.as_linear(hidden)

    def _probe(self) -> str:
        """The first path whose logits on a few tokens match the model's; also sets `vocabulary`."""
        batch, alone = _probe_batch(), _probe_batch(rows=1)
        self.trims = False
        plain = self._forward(batch, "plain")
        self.vocabulary = plain.shape[-1]
        self.notes: list[str] = []
        if asking := modules_that_ask(self.model):
            set_training(asking, True)
            trained = self._forward(batch, "plain")
            if (off := _distance(trained, plain)) > 1.0:
                set_training(asking, False)
                names = sorted({type(module).__name__ for module in asking})
                self.notes.append(
                    f"training mode of {', '.join(names)} changes the logits by {off:.3g} times the rounding allowed, "
                    "so they stay in evaluation mode; on Metal their kernels may have no gradient"
                )
        if not has_plain_cache(self.model):
            self.notes.append("some layers do not keep plain keys and values, so every token runs in every row")
        ways = [("body", True), ("body", False)]
        if has_plain_cache(self.model):
            ways = [("sites", False), ("prefix", True), ("prefix", False), *ways]
        for path, self.trims in ways:
            try:
                self._forward(alone, path)
                off = _distance(self._forward(batch, path), plain)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                why = f"does not fit this model: {type(error).__name__}: {error}"
            else:
                if off <= 1.0:
                    return path
                why = f"changes the logits by {off:.3g} times the rounding allowed"
            if not self.trims:
                self.notes.append(f"path {path!r} {why}")
        return "plain"

    def _probe_gradient(self) -> None:
        """Takes one gradient, of a few tokens: a kernel may have none, and then says so only when asked."""
        _, gradient = self.value_and_grad(_probe_batch(rows=1), lambda logits: (logits.logsumexp(-1).mean(), {}))
        if bad := [name for name, g in gradient.items() if not mx.all(mx.isfinite(g)).item()]:
            raise ArithmeticError(f"the gradient of a few tokens is not finite, such as that of {bad[0]!r}")

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
        compute = partial(self._reference_logprobs, base=base)
        if self.vocabulary <= FULL_ROW_VOCABULARY:
            rows = self._cache.rows(batch, compute)
            return rows if full else rows[mx.array(batch.position), mx.array(batch.target)]
        return compute(batch) if full else self._cache.chosen(batch, compute)

    def _reference_logprobs(self, batch: Batch, base: float) -> mx.array:
        logprobs = self._logprobs_of(batch, self._anchor)
        if base and self._anchor is not None:
            first = self._logprobs_of(batch, None)
            logprobs = mx.logaddexp(logprobs + math.log1p(-base), first + math.log(base))
            mx.eval(logprobs)
        return logprobs

    def _logprobs_of(self, batch: Batch, weights: Weights | None) -> mx.array:
        """Under other LoRA weights; None: of the base model."""
        with self._without_adapter() if weights is None else self._with(weights):
            logprobs, _ = distribution(self.forward(batch).astype(mx.float32))
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


def _prefix(batch: Batch) -> int:
    """The number of columns to compute once for all rows."""
    return batch.prefix if batch.distinct_rows > 1 and batch.prefix >= MIN_PREFIX else 0


def _probe_batch(rows: int = 3) -> Batch:
    """Short rows, at most three, with a shared prefix of MIN_PREFIX tokens; ids 0 to 3 exist in every vocabulary."""
    start = [1, 2, 3, 0, 2, 1, 3, 1][:MIN_PREFIX]
    endings = ([2, 0, 1, 3], [2, 1], [2, 3, 3])[:rows]
    episodes = [
        Episode("probe", 0, {}, {"a": Trajectory("a", "a", turns=[Turn((), "", 0.0, None, row[:-1], row[-1:], [0.0])])})
        for row in ([*start, *ending] for ending in endings)
    ]
    return pack(episodes, [{"a": np.zeros(1)}] * len(endings))


def _distance(a: mx.array, b: mx.array) -> float:
    """Largest difference, in units of the rounding error of the dtype that the model computes in."""
    tolerance = 1e-4 if b.dtype == mx.float32 else 5e-2
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    return float(np.array(mx.max(mx.abs(a - b)) / (tolerance * (1.0 + mx.max(mx.abs(b))))))
