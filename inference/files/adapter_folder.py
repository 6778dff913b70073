"""The files of an adapter's folder, in mlx-lm's layout or PEFT's. Importing this file loads no MLX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = "adapter_config.json"
"""In both layouts."""
WEIGHTS, PEFT_WEIGHTS = "adapters.safetensors", "adapter_model.safetensors"


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter's config."""
    return (folder / CONFIG).exists()


def read_config(folder: Path) -> dict[str, Any]:
    """An adapter's config. OSError or ValueError if it cannot be read."""
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return config
