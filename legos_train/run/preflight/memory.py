"""Estimates the memory of a run from the shape of its model alone, without weights or a download."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any, NamedTuple

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from inference.adapters import linear_shapes
from inference.unpacking import on_cpu, unpacks_at_load
from legos_train.config import TrainConfig, sections, sizes
from legos_train.loss import sites_at_once

GROUP = 64
"""Weights that share a scale in the 4-bit layout."""
KV_LIMIT = 4 << 30
"""`Engine.max_kv_bytes`: rows wait if keys and values would need more."""
HALF, FULL = 2, 4
LOGIT_ARRAYS = 9
"""Arrays of logits, of probabilities and of their gradients that exist at once (loss/site_states.py)."""
KEPT, INSIDE = 1, 16
"""What the backward pass keeps per token, in hidden vectors: for every block, and for the recomputed one."""


def outline(size: sizes.Size) -> nn.Module:
    """A model of the given size whose weights are never computed, since MLX evaluates lazily."""
    module = importlib.import_module(f"mlx_lm.models.{size.shape['model_type']}")
    model: nn.Module = module.Model(module.ModelArgs.from_dict(size.shape))
    if size.bits < 16:
        nn.quantize(model, GROUP, size.bits)
    return model


def needs(config: TrainConfig, size: sizes.Size) -> str:
    """Readable lines: each part of the memory that a run of this model needs."""
    counts = _counted(size.model, config.lora.layers, config.lora.targets)
    number = FULL if on_cpu() else HALF  # a CPU computes in float32
    unpacked = unpacks_at_load(config.dequantize, counts.quantised * number)
    base = counts.nbytes(number, None if unpacked else size.bits)
    elsewhere = counts.nbytes(HALF, size.bits)
    more = f" in float32, on this CPU; on Metal or CUDA {_gib(elsewhere)}" if base > elsewhere * 1.5 else ""
    ranks = [one.lora.rank for one in config.learners.values()] or [config.lora.rank]
    trained = sum(ranks) * counts.sides
    copies = 3 + (config.average.kind != "none")  # the weights, Adam's two moments, the average
    shape = size.shape.get("text_config", size.shape)
    layers = shape["num_hidden_layers"]
    with_keys = layers // shape.get("full_attention_interval", 1)
    a_token = 2 * with_keys * shape["num_key_value_heads"] * shape["head_dim"] * number
    cache = min(KV_LIMIT, config.max_rows * config.context * a_token)
    part = max(config.max_batch_tokens, config.context)  # a longer row is its own part
    logits = LOGIT_ARRAYS * min(part, sites_at_once(shape["vocab_size"])) * shape["vocab_size"] * FULL
    hidden = part * shape["hidden_size"] * number
    kept = hidden * ((config.lora.layers or layers) * (KEPT if config.optim.checkpoint_layers else INSIDE) + INSIDE)
    total = base + copies * trained * FULL + cache + logits + kept
    return "\n".join(
        [
            f"{config.model} is not on this machine: estimated from its shape, without timing",
            f"base model      {_gib(base)}{more}",
            f"LoRA, optimiser, average  {_gib(copies * trained * FULL)} ({trained:,} weights trained)",
            f"keys and values  at most {_gib(cache)}: {config.max_rows} rows of {config.context} tokens, {a_token:,} "
            "bytes a token",
            f"a backward pass  at most {_gib(logits + kept)}: {part} tokens, all trained; logits take {_gib(logits)}",
            f"together        at most {_gib(total)}",
        ]
    )


class Counts(NamedTuple):
    """Numbers of a model's quantised and plain weights, and of LoRA weights of rank 1 in its blocks."""

    quantised: int
    others: int
    sides: int

    def nbytes(self, number: int, bits: int | None) -> float:
        """Bytes, with `number` for each plain weight and each scale; `bits` None: quantised weights count as plain."""
        if bits is None or not self.quantised:
            return (self.quantised + self.others) * number
        return self.quantised * bits / 8 + (self.others + 2 * self.quantised / GROUP) * number


@functools.lru_cache(maxsize=1)
def _counted(model: str, layers: int, targets: tuple[str, ...]) -> Counts:
    """The counts of a model in the list of sizes, with LoRA on some layers (see `LoRASettings`)."""
    lora = sections.LoRASettings(layers=layers, targets=targets)
    size = sizes.shape_of(model)
    assert size is not None
    whole = outline(size)
    leaves: Any = tree_flatten(whole.parameters())
    quantised = sum(array.size for _, array in leaves if array.dtype == mx.uint32) * 32 // size.bits
    plain = sum(array.size for _, array in leaves if array.dtype != mx.uint32)
    first = len(whole.layers) - layers if layers else 0
    named = ((re.search(r"layers\.(\d+)\.(.+)", path), shape) for path, shape in linear_shapes(whole).items())
    sides = sum(sum(shape) for at, shape in named if at and int(at[1]) >= first and lora.takes(at[2]))
    return Counts(quantised, plain - 2 * quantised // GROUP, sides)


def _gib(count: float) -> str:
    return f"{count / 2**30:,.2f} GiB"
