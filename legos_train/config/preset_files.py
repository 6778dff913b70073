"""Settings for whole tasks, one TOML file each: `legos train --preset NAME`.

A file with `real = true` holds what the task needs with a real model; the model and settings that fit it come from
`sizes.py`, and the table `[bundled]` holds what differs for a bundled model. Other files are for the bundled model. The
table `[smoke]` holds the changes for a small run of a bundled model (`--smoke`), which shows that everything works
together but does not learn the task.
"""

from __future__ import annotations

import difflib
import tomllib
from importlib import resources
from typing import Any

from legos_train.config import sizes
from legos_train.config.assignments import merged
from legos_train.errors import ConfigError

_FOLDER = resources.files("legos_train.config") / "presets"
SMOKE: dict[str, Any] = {
    "model": "small",
    "steps": 2,
    "context": 4096,
    "sampling": {"max_tokens": 96},
    "lora": {"rank": 8, "scale": 8.0},
    "optim": {"checkpoint_layers": False},
    "eval": {"games": 4},
    "reply": "env",
}
"""What `--smoke` changes in a preset for a real model; the preset's own table `[smoke]` is applied on top."""


def preset_names() -> list[str]:
    """All presets, sorted."""
    return sorted(f.name.removesuffix(".toml") for f in _FOLDER.iterdir() if f.name.endswith(".toml"))


def preset(name: str, *, smoke: bool = False, size: str | None = None) -> dict[str, Any]:
    """The settings of a preset as plain values.

    Args:
        name: of the preset.
        smoke: whether to apply its table `[smoke]`.
        size: of the model, a key of `SIZES`; the preset's by default. The settings of a preset for a real model
            take precedence over the size; optimiser and LoRA settings of one for the bundled model do not.

    Raises:
        ConfigError: no such preset or size exists; the message names the nearest.
    """
    names = preset_names()
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 1)
        hint = f", did you mean {near[0]!r}?" if near else f"; available: {', '.join(names)}"
        raise ConfigError(f"unknown preset {name!r}{hint}")
    data = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    small, bundled, real = data.pop("smoke", {}), data.pop("bundled", {}), data.pop("real", False)
    if size is not None or real:
        fitting = sizes.size(size or sizes.DEFAULT).over(data)
        caps = {key: fitting[key] for key in ("model", "batch_size", "context", "sampling")}
        data = merged(merged(fitting, data), caps) if real else merged(data, fitting)
    if size in sizes.BUNDLED_SIZES or (smoke and real):
        data = merged(data, bundled)
    if smoke and real:
        data = merged(data, SMOKE)
    return merged(data, small) if smoke else data
