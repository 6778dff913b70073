"""Small runs for the tests of the loop."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from legos_train import TrainConfig
from legos_train.config import from_dict
from legos_train.loss import LossSettings


def small(run_dir: Path | None = None, **changes: Any) -> TrainConfig:
    """A Kuhn poker run of seconds: few steps of 8 games, rare measurements. Nested settings as dicts."""
    settings: dict[str, Any] = {
        "steps": 2,
        "batch_size": 8,
        "threads": 1,
        "run_dir": run_dir,
        "lora": {"rank": 4},
        "eval": {"every": 0},
        "checkpoint": {"every": 0},
    }
    return from_dict({**settings, **changes})


def plain_loss(**changes: Any) -> LossSettings:
    """A loss over tokens without a KL penalty, which is then what a test adds."""
    return LossSettings(**{"aggregation": "token", "kl": 0.0, "kl_estimator": "exact", **changes})


def identify(run: Path, run_id: str = "0123456789ab") -> None:
    """Gives a run that has not begun its id, so that it leaves the same bytes as another with that id."""
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"id": run_id}, indent=2) + "\n")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
