"""Checks that weights are used with the base model they were trained on: bundled models change with Legos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference import BUNDLED
from inference.files import adapter_folder
from legos_train.errors import PolicyError

WEIGHTS = "base_weights"
"""The key of an adapter's facts and of `run.json` with `inference.loading.bundled_digest`; absent for other models."""
REMADE = ("small",)
"""Bundled models that had other weights before runs and adapters recorded which ones they used."""


def identity(model: str) -> dict[str, str]:
    """What a run and its adapters record about their base model."""
    from inference.loading import bundled_digest

    digest = bundled_digest(model)
    return {} if digest is None else {WEIGHTS: digest}


def check_weights(model: str, kept: Any, what: str) -> None:
    """Checks that weights trained on `model` fit it as it is now.

    Args:
        model: the base model's name.
        kept: the recorded identity of that model, or None.
        what: the run or adapter, for the message.

    Raises:
        PolicyError: the base had other weights.
    """
    now = identity(model).get(WEIGHTS)
    if now is None or kept == now or (kept is None and model not in REMADE):
        return
    raise PolicyError(
        f"{what} was trained on another {model!r} than the one of this version of Legos (weights "
        f"{kept or 'not recorded'}, here {now}): it would play nonsense. Train it again, use the version of Legos that "
        "made it, or name that version's model: DIRECTORY+ADAPTER"
    )


def check_adapter(folder: Path, base: str | None = None) -> None:
    """Checks an adapter directory's record of its base; `base`, if given, is the model it will be used with.

    Raises:
        PolicyError: see `check_weights`.
    """
    facts = adapter_folder.read_config(folder).get("legos")
    if isinstance(facts, dict) and (named := facts.get("base_model")):
        check_same(str(named), base or str(named), f"the adapter {str(folder)!r}")
        if base in (None, named):
            check_weights(str(named), facts.get(WEIGHTS), f"the adapter {str(folder)!r}")


def check_same(named: str, base: str, what: str) -> None:
    """Checks that weights trained on one bundled model are not used with another; other names may mean the same model.

    Raises:
        PolicyError: they were trained on another bundled model.
    """
    if named != base and named in BUNDLED and base in BUNDLED:
        raise PolicyError(f"{what} was trained on {named!r}; it does not fit {base!r}")


def check_run(run: Path, model: str) -> None:
    """Checks a run directory's record of its base.

    Raises:
        PolicyError: see `check_weights`.
    """
    try:
        kept = json.loads((run / "run.json").read_text()).get(WEIGHTS)
    except (OSError, ValueError, AttributeError):
        return  # of a run without an identity; those who need one say so
    check_weights(model, kept, f"the run {str(run)!r}")
