"""Settings of whole tasks, one TOML file each: `legos train --preset NAME`.

A file holds the settings meant for a real instruct model. Its table `[smoke]` holds what is different in a small run of
the bundled model (`--smoke`), which shows that everything fits together; it does not learn the task.
"""

from __future__ import annotations

import difflib
import tomllib
from importlib import resources
from typing import Any

from legos_train.config.assignments import merged
from legos_train.errors import ConfigError


def preset_names() -> list[str]:
    """All presets, sorted."""
    return sorted(f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml"))


def preset(name: str, *, smoke: bool = False) -> dict[str, Any]:
    """The settings of a preset as plain values.

    Raises:
        ConfigError: there is no such preset; the message names the nearest.
    """
    names = preset_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
        raise ConfigError(f"unknown preset {name!r}{hint}")
    data = tomllib.loads((resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8"))
    small = data.pop("smoke", {})
    if not smoke:
        return data
    return merged(data, small)
