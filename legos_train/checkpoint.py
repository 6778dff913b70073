"""Checkpoints: the full state of a run, written so that a crash at any point leaves the last one whole.

A checkpoint is a directory of safetensors and JSON (no pickle) with a manifest of sizes and sha256. It is written under
a temporary name, made durable, then renamed. Loading takes the newest one whose manifest holds; a broken one is set
aside as `.corrupt`, never deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from legos_train.storage import fsync, sha256

SCHEMA = 1
MANIFEST = "manifest.json"


def save(
    root: Path, step: int, arrays: Mapping[str, Mapping[str, mx.array]], state: Mapping[str, Any], keep: int
) -> Path:
    """Writes `root/step_N` and then prunes all but the newest `keep`.

    Args:
        arrays: by file name without ending (`adapter`, `optimizer`, ...), named arrays.
        state: JSON values.

    Raises:
        OSError: it could not be written; nothing that was there before has changed.
    """
    root.mkdir(parents=True, exist_ok=True)
    final, temporary = root / f"step_{step}", root / f".tmp-step_{step}-{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, group in arrays.items():
            _save_arrays(temporary / f"{name}.safetensors", group)
        (temporary / "state.json").write_text(json.dumps(state, indent=1))
        files = sorted(temporary.iterdir())
        manifest = {
            "schema": SCHEMA,
            "step": step,
            "files": {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for file in [*files, temporary / MANIFEST, temporary]:
            fsync(file)
        if final.exists():
            os.rename(final, root / f".old-step_{step}-{os.getpid()}")
        os.rename(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync(root)
    for stale in [*root.glob(".old-*"), *(root / f"step_{n}" for n in _steps(root)[:-keep])]:
        shutil.rmtree(stale)
    return final


def _save_arrays(path: Path, group: Mapping[str, mx.array]) -> None:
    try:
        mx.save_safetensors(str(path), dict(sorted(group.items())))
    except RuntimeError as error:  # MLX hides the cause; a small write of our own brings it out
        with open(path, "ab") as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        raise OSError(f"cannot write {path}: {error}") from error
    if path.stat().st_size < sum(array.nbytes for array in group.values()):
        raise OSError(28, os.strerror(28), str(path))


def _steps(root: Path) -> list[int]:
    return sorted(int(d.name[5:]) for d in root.glob("step_*") if d.name[5:].isdigit())


def load_newest(root: Path) -> tuple[dict[str, dict[str, mx.array]], dict[str, Any]] | None:
    """The arrays and the state of the newest whole checkpoint, or None when there is none."""
    for step in reversed(_steps(root)):
        directory = root / f"step_{step}"
        if problem := damage(directory):
            target = root / f"step_{step}.corrupt"
            shutil.rmtree(target, ignore_errors=True)
            os.rename(directory, target)
            print(f"checkpoint {directory} is damaged ({problem}); set aside as {target.name}", flush=True)
            continue
        arrays = {}
        for file in sorted(directory.glob("*.safetensors")):
            arrays[file.stem] = dict(mx.load(str(file)))  # type: ignore[arg-type]
            mx.eval(arrays[file.stem])
        return arrays, json.loads((directory / "state.json").read_text())
    return None


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint: a sentence, or None when every file is as the manifest says."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        if manifest["schema"] != SCHEMA:
            return f"schema {manifest['schema']}, this version reads {SCHEMA}"
        for name, entry in manifest["files"].items():
            file = directory / name
            if not file.is_file() or file.stat().st_size != entry["bytes"] or sha256(file) != entry["sha256"]:
                return f"{name} is missing or changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"unreadable manifest: {error}"
    return None
