"""A checkpoint of a run (`runs/x@step_40`) as an adapter folder, so that it is exported like `last` and `best`."""

from __future__ import annotations

import re
from pathlib import Path

from legos_train.errors import ExportError

_MATRIX = re.compile(r"layers\.(\d+)\.(.+)\.lora_[ab]$")


def is_checkpoint(which: str) -> bool:
    """Whether the part after the `@` of a run's name is a checkpoint."""
    return which.startswith("step_")


def unpack(spec: str, folder: Path) -> tuple[str, Path]:
    """Writes the weights of a checkpoint in mlx-lm's layout, below a folder.

    Returns:
        The name of the base model, and the adapter's folder.

    Raises:
        PolicyError: the run has not kept that checkpoint.
        ExportError: the checkpoint is damaged.
    """
    from legos_train.disk import bases, checkpoint_files, save_adapter
    from legos_train.rollout.players import words

    base, checkpoint = words.locate(spec)
    assert checkpoint is not None  # a spec with a step is a run's
    try:
        weights, scale, step = words.read_weights(checkpoint)
    except checkpoint_files.CorruptCheckpoint as error:
        raise ExportError(f"{spec!r}: the checkpoint is damaged: {error}") from None
    matrices = [(match, array) for name, array in weights.items() if (match := _MATRIX.search(name))]
    parameters = {
        "rank": min(array.shape[match[0].endswith("_a")] for match, array in matrices),
        "scale": scale,
        "dropout": 0.0,
        "keys": sorted({match[2] for match, _ in matrices}),
    }
    facts = {"env": _title(spec), "step": step, "weights": f"checkpoint step_{step}", **bases.identity(base)}
    config = {
        "fine_tune_type": "lora",
        "num_layers": len({match[1] for match, _ in matrices}),  # counted from the last one, which is always trained
        "lora_parameters": parameters,
        "legos": {"base_model": base, **facts},
    }
    path = folder / checkpoint.name
    save_adapter(path, weights, config)
    return base, path


def _title(spec: str) -> str:
    from legos_train.config import TrainConfig
    from legos_train.rollout.players import words

    return TrainConfig.load(Path(words.run_and_weights(spec)[0]) / "config.toml").title
