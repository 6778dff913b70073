"""Which layers of a model an adapter can change, and the shapes and types it must fit."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from inference.unpacking import UnpackedLinear

LORA, DORA = "mlx_lm.tuner.lora", "mlx_lm.tuner.dora"
"""The modules of mlx-lm's adapter layers. Importing their classes would load mlx-lm's trainer and, where
it is installed, wandb: most of a second for every process."""


def base_layer(module: object, *, by: tuple[str, ...] = (LORA, DORA)) -> nn.Module | None:
    """The layer that an adapter layer of mlx-lm wraps, or None for any other module.

    Args:
        module: any module.
        by: the mlx-lm modules whose classes count.
    """
    if not isinstance(module, nn.Module) or not any(kind.__module__ in by for kind in type(module).__mro__):
        return None
    inner = module.get("linear", module.get("embedding"))
    return inner if isinstance(inner, nn.Module) else None


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Path -> (in, out) of every linear layer that an adapter may change, LoRA wrappers seen through.

    Layers that override the call are left out: some split their result, and a product cannot be added to that.
    """
    shapes = {}
    for path, module in model.named_modules():
        inner = base_layer(module, by=(LORA,))
        if inner is not None and _is_linear(inner):
            shapes[path] = _linear_shape(inner)
        elif _is_linear(module) and not path.endswith(".linear"):
            shapes[path] = _linear_shape(module)
    return shapes


def _is_linear(module: nn.Module) -> bool:
    kinds = (nn.Linear, nn.QuantizedLinear, UnpackedLinear)
    return isinstance(module, kinds) and type(module).__call__ in {kind.__call__ for kind in kinds}


def narrowest(model: nn.Module) -> mx.Dtype:
    """float16 if any linear layer has it, else bfloat16, else float32: the type an adapter must be finite in."""
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.QuantizedLinear))]
    kinds = {(m.scales if isinstance(m, nn.QuantizedLinear) else m.weight).dtype for m in layers}
    return next((kind for kind in (mx.float16, mx.bfloat16) if kind in kinds), mx.float32)


def other_layers(model: nn.Module) -> dict[str, str]:
    """Path -> kind of layer, for layers that mlx-lm can adapt with LoRA but the engine cannot."""
    kinds = {
        "expert": (SwitchLinear, QuantizedSwitchLinear),
        "embedding": (nn.Embedding, nn.QuantizedEmbedding),
    }
    modules = [(path.removesuffix(".linear").removesuffix(".embedding"), m) for path, m in model.named_modules()]
    return {path: kind for path, m in modules for kind, types in kinds.items() if isinstance(m, types)}


def _linear_shape(linear: nn.Module) -> tuple[int, int]:
    out, width = linear.weight.shape
    if isinstance(linear, nn.QuantizedLinear):
        width = width * 32 // linear.bits
    return width, out
