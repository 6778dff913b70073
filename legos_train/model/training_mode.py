"""Selects the modules that must be in training mode.

mlx-lm's gated-delta layers run a Metal kernel without a gradient unless they are in training mode; other modules cache
products of weights that would have to be recomputed. Training mode also means dropout, with which the learner's policy
would differ from the one that played. So it is set only for modules whose own code checks for it, and never for MLX's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlx import nn


def modules_that_ask(model: nn.Module) -> list[nn.Module]:
    """The modules whose class reads `self.training`, except those of `mlx.nn`, such as dropout."""
    return [module for module in model.modules() if _asks(type(module))]


def set_training(modules: list[nn.Module], on: bool) -> None:
    """Sets the mode of these modules; their submodules are unchanged."""
    for module in modules:
        module._training = on


def _asks(kind: type) -> bool:
    own = (base for base in kind.__mro__ if not base.__module__.startswith("mlx.") and base is not object)
    return any("training" in code.co_names for base in own for code in _codes(base))


def _codes(kind: type) -> Iterator[Any]:
    for value in vars(kind).values():
        function = value.fget if isinstance(value, property) else value
        if (code := getattr(function, "__code__", None)) is not None:
            yield code
