"""mlx-lm's own LoRA layers. Its trainer, which comes along, imports wandb where that is installed: a second of CPU."""

import sys

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(sys.modules, "wandb", None)
    from mlx_lm.tuner.utils import LoRALinear, linear_to_lora_layers, load_adapters

__all__ = ["LoRALinear", "linear_to_lora_layers", "load_adapters"]
