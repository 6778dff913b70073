"""mlx-lm's own LoRA and DoRA layers, seen through.

They are known by where their classes come from: importing `mlx_lm.tuner` for its classes would bring its trainer along
and, where that is installed, wandb, which is most of a second for every process. While nobody has imported it, no layer
can be one of its kind.
"""

from __future__ import annotations

from mlx import nn

LORA, DORA = "mlx_lm.tuner.lora", "mlx_lm.tuner.dora"


def wrapped(module: object, *, by: tuple[str, ...] = (LORA, DORA)) -> nn.Module | None:
    """The layer that an adapter layer of mlx-lm is around, or None for any other module.

    Args:
        module: any module.
        by: the modules of mlx-lm whose classes count.
    """
    if not isinstance(module, nn.Module) or not any(kind.__module__ in by for kind in type(module).__mro__):
        return None
    inner = module.get("linear", module.get("embedding"))
    return inner if isinstance(inner, nn.Module) else None
