"""Estimates the memory of a run from the shape of its model alone, without weights or a download."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
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
KEPT, WORKED = 2.5, 6.0
"""Numbers that the backward pass keeps in a block, and those it works with in one, per token and output of the block's
linear layers; measured on a CPU (tests/train/test_sizes.py)."""
RULE, RULE_INPUTS = 3.0, "in_proj_qkv"
"""How many times as many for the inputs of a gated delta rule, and the layer whose outputs they are."""


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
    interval = shape.get("full_attention_interval", 1)
    with_keys = layers // interval
    a_token = 2 * with_keys * shape["num_key_value_heads"] * shape["head_dim"] * number
    cache = min(KV_LIMIT, config.max_rows * config.context * a_token)
    rest = base + copies * trained * FULL + cache

    def backward(tokens: int, longest: int) -> tuple[float, float]:
        """Bytes of the logits, and of everything together, for so many tokens in rows of at most `longest`."""
        logits = LOGIT_ARRAYS * min(tokens, sites_at_once(shape["vocab_size"])) * shape["vocab_size"] * FULL
        kept = kept_per_token(
            counts.outputs,
            shape["hidden_size"],
            scores=shape["num_attention_heads"] * longest // 2,
            with_scores=-(-len(counts.outputs) // interval),
            checkpoint_layers=config.optim.checkpoint_layers,
        )
        return logits, logits + tokens * number * kept

    part, context = config.max_batch_tokens, config.context
    logits, usual = backward(part, min(part, context))
    _, most = backward(part + context, context)
    return "\n".join(
        [
            f"{config.model} is not on this machine: estimated from its shape, without timing",
            f"base model      {_gib(base)}{more}",
            f"LoRA, optimiser, average  {_gib(copies * trained * FULL)} ({trained:,} weights trained)",
            f"keys and values  at most {_gib(cache)}: {config.max_rows} rows of {context} tokens, {a_token:,} bytes "
            "per token",
            f"a backward pass  {_gib(usual)} for {part} tokens (max_batch_tokens), all trained; logits take "
            f"{_gib(logits)}",
            f"together        {_gib(rest + usual)}; at most {_gib(rest + most)}, if rows as long as the context, "
            f"{context} tokens, share most of it",
        ]
    )


def kept_per_token(
    outputs: Sequence[float], hidden: int, *, scores: int, with_scores: int, checkpoint_layers: bool
) -> float:
    """Numbers per token that a backward pass needs at most, logits apart.

    Args:
        outputs: for each trained block, the outputs of its linear layers, weighted (`Counts`).
        hidden: the hidden size.
        scores: numbers per token of one block's attention, as far as it keeps them.
        with_scores: blocks that have any.
        checkpoint_layers: only the block whose gradient is being computed keeps more than its input.
    """
    if checkpoint_layers:
        return len(outputs) * hidden + (KEPT + WORKED) * max(outputs) + scores
    return KEPT * sum(outputs) + WORKED * max(outputs) + with_scores * scores


class Counts(NamedTuple):
    """Numbers of a model's quantised and plain weights, of LoRA weights of rank 1 in its blocks, and of the outputs of
    each trained block's linear layers, where the inputs of a gated delta rule count `RULE` times.
    """

    quantised: int
    others: int
    sides: int
    outputs: tuple[float, ...]

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
    sides, outputs = 0, [0.0] * (len(whole.layers) - first)
    for path, shape in linear_shapes(whole).items():
        at = re.search(r"layers\.(\d+)\.(.+)", path)
        if at and int(at[1]) >= first:
            sides += sum(shape) if lora.takes(at[2]) else 0
            outputs[int(at[1]) - first] += shape[1] * (RULE if path.endswith(RULE_INPUTS) else 1)
    return Counts(quantised, plain - 2 * quantised // GROUP, sides, tuple(outputs))


def _gib(count: float) -> str:
    return f"{count / 2**30:,.2f} GiB"
