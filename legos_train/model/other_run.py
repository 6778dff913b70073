"""Loads snapshots of another run, to play against them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np

from inference.files import adapter_folder, tensors
from legos_train.disk import bases, checkpoint
from legos_train.errors import ConfigError

Weights = dict[str, mx.array]
LONGEST, SHOWN = 64, 40
"""Characters of a member's name, and of the part of it that says which snapshot."""


def read_snapshots(run: Path) -> tuple[dict[str, Weights], float | None]:
    """LoRA weights of a run by name, oldest first, and the scale they were trained with.

    Sources: `checkpoints/step_N/adapter.safetensors` and `league_*.safetensors` of the same checkpoints (damaged ones
    are skipped), then `last`, `best`, the published `adapter` and `average`. Names are `RUN.step_40`, `RUN.best`, and
    `RUN.OTHER.step_40` for what it had from another run, in characters that file names and servers accept; duplicate
    weights are taken once. In a run with several learners a snapshot covers all of them, and its tensors are called
    `LEARNER/TENSOR`.

    Returns:
        The weights, and `lora.scale` of the run's config; None if the run has no config.toml.

    Raises:
        ConfigError: the directory does not exist, or has no playable weights.
    """
    run = Path(run)
    if not run.is_dir():
        raise ConfigError(f"league.pool_from: {str(run)!r} is not a directory; give a run's, such as runs/x")
    config = tomllib.loads((run / "config.toml").read_text()) if (run / "config.toml").is_file() else None
    scale = None if config is None else float(config.get("lora", {}).get("scale", 8.0))
    if config is not None:
        bases.check_run(run, str(config.get("model", "tiny")))
    files: dict[str, dict[str, Path]] = {}  # by snapshot, its files by what their tensors' names begin with
    for directory in sorted(run.glob("checkpoints/step_*"), key=_step):
        if _step(directory) < 0 or checkpoint.damage(directory):
            continue
        for file in sorted(directory.glob("league_*.safetensors")):
            files.setdefault(file.stem[7:], {"": file})
        files[directory.name] = {
            f"{learner}/" if (learner := file.stem[8:]) else "": file
            for file in sorted(directory.glob("adapter.*safetensors"))
        }
    files = dict(sorted(files.items(), key=lambda item: (_step(Path(item[0])), item[0])))
    for name in ("last", "best", "adapter", "average"):
        files[name] = {
            "" if file.parent == run / name else f"{file.parent.name}/": file
            for file in sorted((run / name).glob(f"**/{adapter_folder.WEIGHTS}"))
        }
    found: dict[str, Weights] = {}
    for name, parts in files.items():
        weights: Weights = {}
        for begins, file in parts.items():
            weights |= {begins + key: array for key, array in tensors.from_bytes(file.read_bytes()).items()}
        if weights and not any(_equal(weights, other) for other in found.values()):
            found[_member(run, name, found)] = weights
    if not found:
        raise ConfigError(
            f"league.pool_from: no snapshots in {str(run)!r}; looked for checkpoints/step_*/adapter.safetensors, "
            f"last/, best/ and adapter/ with {adapter_folder.WEIGHTS}"
        )
    return found, scale


def snapshots_for(
    run: Path,
    room: int,
    like: Mapping[str, mx.array] | None = None,
    scale: float | None = None,
    learner: str | None = None,
) -> dict[str, Weights]:
    """At most `room` snapshots of a run, in a form that this run can play.

    Args:
        run: its directory.
        room: maximum number.
        like: this run's weights; names and shapes must be the same.
        scale: this run's `lora.scale`; weights with another scale are converted.
        learner: which of this run's learners they are for. It gets the snapshots of the learner with that name; a run
            with one policy provides the same for all.

    Raises:
        ConfigError: as `read_snapshots`, or they do not fit, or they are of several learners and none has this name.
    """
    found, other = read_snapshots(run)
    factor = 1.0 if scale is None or other is None else other / scale
    chosen = {name: _own(weights, learner, run) for name, weights in spread(found, room).items()}
    for name, weights in chosen.items():
        if like is not None and (problem := misfit(weights, like)):
            raise ConfigError(
                f"league.pool_from: {name} does not fit this run: {problem}; use the same lora.rank, "
                "lora.layers and lora.targets"
            )
    return {name: w if factor == 1.0 else rescaled(w, factor) for name, w in chosen.items()}


def _own(weights: Weights, learner: str | None, run: Path) -> Weights:
    """A learner's part of a snapshot; the whole snapshot if it is of a single policy."""
    names = sorted({key.partition("/")[0] for key in weights if "/" in key})
    if not names:
        return weights
    if learner not in names:
        wanted = "this run has one policy" if learner is None else f"not {learner!r}"
        raise ConfigError(
            f"league.pool_from: {str(run)!r} has the learners {', '.join(names)}, {wanted}; name the learners of both "
            "runs alike (name = ... in [[learner]])"
        )
    return {key.partition("/")[2]: array for key, array in weights.items() if key.startswith(f"{learner}/")}


def spread(found: Mapping[str, Weights], most: int) -> dict[str, Weights]:
    """At most `most` of them, spread evenly over the run, including the newest."""
    names = list(found)
    if len(names) > most:
        names = [names[i] for i in np.linspace(len(names) - 1, 0, most).round().astype(int)[::-1]]
    return {name: found[name] for name in names}


def rescaled(weights: Weights, factor: float) -> Weights:
    """The same function under another scale: `B` takes the factor, since only `scale * B A` matters."""
    return {name: array * factor if name.endswith("lora_b") else array for name, array in weights.items()}


def misfit(weights: Mapping[str, mx.array], like: Mapping[str, mx.array]) -> str | None:
    """A description of the first tensor whose name or shape differs; None if the adapters fit."""
    for name in sorted(weights.keys() | like.keys()):
        got, wanted = (None if name not in side else tuple(side[name].shape) for side in (weights, like))
        if got != wanted:
            return f"{name} has shape {got}, this run's is {wanted}"
    return None


def _member(run: Path, name: str, taken: Collection[str]) -> str:
    """The name of a run's snapshot, at most `LONGEST` characters; a long one keeps its end, which has the step."""
    for count in range(len(taken) + 1):
        end = name[-SHOWN:].lstrip("._-") + (f"-{count}" if count else "")
        if (found := f"{_word(run.resolve().name)[: LONGEST - 1 - len(end)]}.{end}") not in taken:
            return found
    raise AssertionError("more names than members")


def _word(name: str) -> str:
    """A run's name for use in a member's, which names a checkpoint file and an adapter on a server."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:40] or "run"


def _step(path: Path) -> int:
    """40 for `step_40`; -1 for anything else."""
    word = path.name.rpartition("step_")[2]
    return int(word) if word.isdigit() else -1


def _equal(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(
        a[n].shape == b[n].shape and a[n].dtype == b[n].dtype and bool(mx.array_equal(a[n], b[n]).item()) for n in a
    )
