"""The snapshots that another run left behind, to play against them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np

from inference import tensors
from legos_train.disk import checkpoint

Weights = dict[str, mx.array]


def read_run(run: Path) -> tuple[dict[str, Weights], float | None]:
    """LoRA weights of a run by name, oldest first, and the scale they were trained with.

    Looked for: `checkpoints/step_N/adapter.safetensors` and `league_*.safetensors` of the same checkpoints (damaged
    ones are passed over), then `last`, `best`, the published `adapter` and `average`. Names are `RUN.step_40`,
    `RUN.best`, in letters that file names and servers take; weights that are there twice are taken once.

    Returns:
        The weights, and `lora.scale` of the run's config; None where the run has no config.toml.

    Raises:
        ValueError: there is no such directory, or nothing in it that could play.
    """
    run = Path(run)
    if not run.is_dir():
        raise ValueError(f"league.pool_from: {str(run)!r} is not a directory; give that of a run, such as runs/x")
    config = tomllib.loads((run / "config.toml").read_text()) if (run / "config.toml").is_file() else None
    scale = None if config is None else float(config.get("lora", {}).get("scale", 8.0))
    files: dict[str, Path] = {}
    for directory in sorted(run.glob("checkpoints/step_*"), key=_step):
        if _step(directory) < 0 or checkpoint.damage(directory):
            continue
        for file in sorted(directory.glob("league_*.safetensors"), key=lambda f: _step(Path(f.stem[7:]))):
            files.setdefault(file.stem[7:].rpartition(".")[2], file)
        files[directory.name] = directory / "adapter.safetensors"
    files = dict(sorted(files.items(), key=lambda item: _step(Path(item[0]))))
    files |= {name: run / name / "adapters.safetensors" for name in ("last", "best", "adapter", "average")}
    found: dict[str, Weights] = {}
    for name, file in files.items():
        if not file.is_file():
            continue
        weights = tensors.from_bytes(file.read_bytes())
        if not any(_equal(weights, other) for other in found.values()):
            found[f"{_word(run.resolve().name)}.{name}"] = weights
    if not found:
        raise ValueError(
            f"league.pool_from: no snapshots in {str(run)!r}; looked for checkpoints/step_*/adapter.safetensors, "
            "last/, best/ and adapter/ with adapters.safetensors"
        )
    return found, scale


def snapshots_for(
    run: Path, room: int, like: Mapping[str, mx.array] | None = None, scale: float | None = None
) -> dict[str, Weights]:
    """At most `room` snapshots of a run as this run can play them.

    Args:
        run: its directory.
        room: at most so many.
        like: this run's weights; names and shapes must be the same.
        scale: this run's `lora.scale`; where the other run had another one its weights are made to mean the same.

    Raises:
        ValueError: as `read_run`, or they do not fit.
    """
    found, other = read_run(run)
    factor = 1.0 if scale is None or other is None else other / scale
    chosen = spread(found, room)
    for name, weights in chosen.items():
        if like is not None and (problem := misfit(weights, like)):
            raise ValueError(f"league.pool_from: {name} does not fit this run: {problem}; use the same lora.rank")
    return {name: w if factor == 1.0 else rescaled(w, factor) for name, w in chosen.items()}


def spread(found: Mapping[str, Weights], most: int) -> dict[str, Weights]:
    """At most `most` of them, evenly over the run, the newest among them."""
    names = list(found)
    if len(names) > most:
        names = [names[i] for i in np.linspace(len(names) - 1, 0, most).round().astype(int)[::-1]]
    return {name: found[name] for name in names}


def rescaled(weights: Weights, factor: float) -> Weights:
    """The same function under another scale: `B` takes the factor, since `scale * B A` is what counts."""
    return {name: array * factor if name.endswith("lora_b") else array for name, array in weights.items()}


def misfit(weights: Mapping[str, mx.array], like: Mapping[str, mx.array]) -> str | None:
    """In which tensor two adapters differ in name or shape, in words; None when they fit."""
    for name in sorted(weights.keys() | like.keys()):
        got, wanted = (None if name not in side else tuple(side[name].shape) for side in (weights, like))
        if got != wanted:
            return f"{name} has shape {got} where this run has {wanted}"
    return None


def _word(name: str) -> str:
    """A run's name as part of a member's, which becomes a file in a checkpoint and an adapter on a server."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:40] or "run"


def _step(path: Path) -> int:
    """40 for `step_40`; -1 for anything else."""
    word = path.name.rpartition("step_")[2]
    return int(word) if word.isdigit() else -1


def _equal(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(
        a[n].shape == b[n].shape and a[n].dtype == b[n].dtype and bool(mx.array_equal(a[n], b[n]).item()) for n in a
    )
