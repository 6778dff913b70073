"""LoRA on a model that is in use elsewhere: a second module tree over the same base arrays.

Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): `y = W x + scale * B A x`, with A random and B zero at first.
Names and layout are mlx-lm's (`lora_a` (in, rank), `lora_b` (rank, out), `scale` rather than alpha / rank), so that
what is saved here loads there. Dropout is left out: it would make the trained policy differ from the sampled one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_unflatten

from legos_train.config import sections
from legos_train.errors import ConfigError

Weights = dict[str, mx.array]
"""LoRA weights by mlx-lm's names, such as `model.layers.0.self_attn.q_proj.lora_a`."""


class Switch:
    """Turns all LoRA layers of one policy on and off together."""

    on: bool = True


class LoRALinear(nn.Module):
    """A linear layer (quantized or not) plus a low-rank term in float32. x (..., in) -> (..., out)."""

    def __init__(self, linear: nn.Module, settings: sections.LoRASettings, key: mx.array, switch: Switch) -> None:
        super().__init__()
        inputs, outputs = linear_shape(linear)
        bound = 1.0 / math.sqrt(inputs)
        self.linear = linear
        self.scale = settings.scale
        self.lora_a = mx.random.uniform(-bound, bound, (inputs, settings.rank), key=key)
        self.lora_b = mx.zeros((settings.rank, outputs))
        self._switch = switch

    def __call__(self, x: mx.array) -> mx.array:
        y = self.linear(x)
        if not self._switch.on:
            return y
        low = self.scale * (x @ self.lora_a)
        if y.dtype == low.dtype:
            return mx.addmm(y, low, self.lora_b)
        return y + (low @ self.lora_b).astype(y.dtype)


def linear_shape(linear: nn.Module) -> tuple[int, int]:
    """(inputs, outputs) of a Linear or QuantizedLinear; quantized weights hold 32 / bits inputs per word."""
    outputs, inputs = linear.weight.shape
    return (inputs * 32 // linear.bits if isinstance(linear, nn.QuantizedLinear) else inputs), outputs


def share(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of a module tree with new modules only: arrays and everything else are the same objects.

    No constructor of a model runs, so nothing is allocated and the global random state does not change. Adapter
    layers around a linear layer (any module with a Linear or QuantizedLinear called `linear`) are peeled off: the copy
    is the base.
    """
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, nn.Module):
        inner = value.get("linear")
        if isinstance(inner, nn.Linear | nn.QuantizedLinear):
            return share(inner, memo)
        kind: Any = getattr(type(value), "kept", type(value))  # see recomputed_layers.py
        copy = kind.__new__(kind)
        nn.Module.__init__(copy)  # recurrent_gemma's model skips it
        memo[id(value)] = copy
        # Sets hold which parameters are frozen; sharing one would freeze the other tree's parameters too.
        copy.__dict__.update({name: set(v) if isinstance(v, set) else v for name, v in vars(value).items()})
        for name, child in value.items():
            dict.__setitem__(copy, name, share(child, memo))
        return copy
    if isinstance(value, list | tuple):
        return type(value)(share(child, memo) for child in value)
    if isinstance(value, dict):
        return {name: share(child, memo) for name, child in value.items()}
    return value


def add_lora(model: nn.Module, settings: sections.LoRASettings, seed: int, switch: Switch) -> list[str]:
    """Puts LoRA on linear layers of the blocks and freezes everything else; returns their names inside a block.

    The initial weights depend only on `seed` and on which layers there are.

    Raises:
        ConfigError: the model has fewer blocks, or none of its layers is a target.
    """
    model.freeze()
    if settings.layers > len(model.layers):
        raise ConfigError(f"lora.layers must be at most {len(model.layers)}, the model's blocks; got {settings.layers}")
    linear = [
        (block, name, module)
        for block in model.layers[-settings.layers :]
        for name, module in sorted(block.named_modules())
        if isinstance(module, nn.Linear | nn.QuantizedLinear)
    ]
    for target in settings.targets:
        if not any(sections.LoRASettings(targets=(target,)).takes(name) for _, name, _ in linear):
            names = sorted({name for _, name, _ in linear})
            near = difflib.get_close_matches(target, [*names, *(name.rpartition(".")[2] for name in names)], n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ConfigError(f"lora.targets: {target!r} is in none of the names {', '.join(names)}{hint}")
    targets = [one for one in linear if settings.takes(one[1])]
    keys = mx.random.split(mx.random.key(seed), max(len(targets), 2))
    for (block, name, module), key in zip(targets, keys):
        layer = LoRALinear(module, settings, key, switch)
        layer.linear.freeze()
        block.update_modules(tree_unflatten([(name, layer)]))
    return sorted({name for _, name, _ in targets})


def grad_norm(grads: Mapping[str, mx.array]) -> float:
    """The Euclidean norm over all gradients together."""
    squares = [mx.sum(grad.astype(mx.float32) ** 2) for grad in grads.values()]
    return float(np.sqrt(np.array(mx.stack(squares), dtype=np.float64).sum())) if squares else 0.0
