"""Pretraining of the bundled models: AdamW on soft targets, a fixed number of steps, everything from one seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import mlx.core as mx
import numpy as np
from mlx.optimizers import AdamW, clip_grad_norm
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import qwen3

from legos_train.bootstrap.pretraining_loss import Readers
from legos_train.bootstrap.shared_gradients import SharedGradients
from legos_train.bootstrap.tokenizer import CONTEXT
from legos_train.bootstrap.training_rows import KINDS, DialogueRow, PretrainingBatch, collate

PEAK = 1.5e-3
Report = Callable[[int, int, dict[str, float]], None]
"""Called with the step, the number of steps, and the loss by kind of token."""


class Shape(NamedTuple):
    """The size of a Qwen3 model with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int


TINY = Shape(hidden=128, layers=2, heads=8, kv_heads=2, head_dim=16, mlp=512)
SMALL = Shape(hidden=192, layers=3, heads=6, kv_heads=2, head_dim=32, mlp=512)
"""About 0.74 M and 1.6 M parameters at 2,048 tokens. vLLM's CPU attention needs heads of at least 32."""


def model_config(vocab_size: int, shape: Shape = TINY) -> dict[str, Any]:
    """config.json of a bundled model."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.mlp,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.08,
        "use_cache": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def new_model(config: dict[str, Any], seed: int) -> qwen3.Model:
    """A fresh model; a function of config and seed.

    Embeddings are initialised with standard deviation 0.08. With the usual 0.02 the two layers do not learn to copy a
    word from the prompt within the steps of this recipe.
    """
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    rng = np.random.default_rng([seed, 1])
    fresh = []
    for name, value in cast(list[tuple[str, mx.array]], tree_flatten(model.parameters())):
        if name.endswith("norm.weight"):
            continue
        scale = config["initializer_range"] if "embed" in name else 1.0 / math.sqrt(3.0 * value.shape[-1])
        fresh.append((name, mx.array(rng.normal(0.0, scale, value.shape).astype(np.float32))))
    model.load_weights(fresh, strict=False)
    mx.eval(model.parameters())
    return model


def learning_rate(step: int, steps: int, peak: float = PEAK, warmup: int = 30, floor: float = 0.02) -> float:
    """Linear warm-up, then a cosine to `floor` times the peak."""
    warm = min(1.0, (step + 1) / warmup)
    return peak * warm * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * step / steps)))


class Pretraining:
    """Pretraining in progress: the model, its readers and the optimiser.

    Args:
        model: is trained in place.
        stages: the steps of each stage; the learning rate falls within a stage and rises again at the next.
        readers: number of facts read off the hidden states; see `training_rows.READ_BEST`.
        seed: seed of the readers.
        peaks: the highest learning rate of each stage; None: `PEAK`.
        processes, threads: see `SharedGradients`; `with training.gradients:` ends the worker process.
    """

    def __init__(
        self,
        model: qwen3.Model,
        stages: Sequence[int],
        readers: int,
        seed: int,
        peaks: Sequence[float] | None = None,
        processes: int = 1,
        threads: int = 1,
    ):
        self.readers = Readers(model, readers, seed)
        self.stages, self.step = tuple(stages), 0
        self.peaks = tuple(peaks or [PEAK] * len(self.stages))
        self.optimizer = AdamW(learning_rate=learning_rate(0, 1), betas=[0.9, 0.98], weight_decay=0.01)
        self.optimizer.init(self.readers.trainable_parameters())
        self.gradients = SharedGradients(self.readers, processes, threads)

    @property
    def steps(self) -> int:
        """The number of steps of all stages."""
        return sum(self.stages)

    @property
    def place(self) -> tuple[int, int, int]:
        """The stage, the step within it, and its number of steps."""
        at, stage = self.step, 0
        while at >= self.stages[stage] and stage < len(self.stages) - 1:
            at, stage = at - self.stages[stage], stage + 1
        return stage, at, self.stages[stage]

    def train(self, rows: Iterator[DialogueRow], batch_size: int, until: int, report: Report | None = None) -> None:
        """Trains on `rows` up to step `until`.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        following = _batch(rows, batch_size) if self.step < until else None
        while (batch := following) is not None:
            following = None

            def meanwhile() -> None:
                nonlocal following
                if self.step + 1 < until:
                    following = _batch(rows, batch_size)

            # What is read off early stays; towards the end of a stage replies get priority.
            stage, at, steps = self.place
            batch.weights[batch.readers >= 0] *= 1.0 - 0.9 * at / steps
            self.optimizer.learning_rate = learning_rate(at, steps, self.peaks[stage])
            loss, gaps, arrays = self.gradients(batch, meanwhile)
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} at step {self.step}; nothing was saved")
            unclipped = tree_unflatten([(name, mx.array(array)) for name, array in arrays.items()])
            gradients, _ = clip_grad_norm(unclipped, 1.0)
            self.optimizer.update(self.readers, gradients)
            mx.eval(self.readers.parameters(), self.optimizer.state)
            self.step += 1
            if report is not None:
                present = [(number, name) for number, name in enumerate(KINDS) if (batch.kinds == number).any()]
                losses = {name: float(gaps[batch.kinds == number].mean()) for number, name in present}
                report(self.step, self.steps, losses)

    def save(self, path: Path) -> None:
        """Writes everything that `resume` needs, atomically."""
        state: dict[str, mx.array] = dict(tree_flatten([self.readers.parameters(), self.optimizer.state]))
        fresh = path.with_name(f"{path.stem}.new.safetensors")
        mx.save_safetensors(str(fresh), state, metadata={"step": str(self.step), "steps": str(self.steps)})
        fresh.replace(path)

    def resume(self, path: Path) -> None:
        """Continues from a file written by `save`.

        Raises:
            ValueError: it is from a run of a different length.
        """
        state, metadata = cast(tuple[dict[str, mx.array], dict[str, str]], mx.load(str(path), return_metadata=True))
        if int(metadata["steps"]) != self.steps:
            raise ValueError(
                f"{path} was interrupted in a run of {metadata['steps']} steps; got steps {self.steps}. "
                "Continue with the same number, or remove the file to start over"
            )
        parameters, optimizer = cast(list[Any], tree_unflatten(list(state.items())))
        self.readers.update(parameters)
        self.optimizer.state = optimizer
        self.step = int(metadata["step"])
        mx.eval(self.readers.parameters(), self.optimizer.state)


def _batch(rows: Iterator[DialogueRow], size: int) -> PretrainingBatch:
    return collate(list(islice(rows, size)))
