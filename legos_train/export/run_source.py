"""A run to export: its settings, its numbers, and the selected adapter."""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legos_train.disk import RunDirectory
from legos_train.errors import ExportError, PolicyError
from legos_train.export import peft
from legos_train.export.checkpoint_adapter import is_checkpoint, unpack
from legos_train.observe import eval_numbers, read_run
from legos_train.settings import as_entries, with_none


@dataclass(frozen=True, slots=True)
class Source:
    """A run to export.

    Attributes:
        path: its directory.
        config: config.toml as plain values.
        digest: the hash of config.toml.
        result: result.json as plain values.
        which: the selected weights, such as `adapter` or `best`.
        adapter: their folder.
    """

    path: Path
    config: dict[str, Any]
    digest: str
    result: dict[str, Any]
    which: str
    adapter: Path

    @property
    def after(self) -> dict[str, Any]:
        """The numbers of the exported weights."""
        kind = self.result["published"] if self.which == "adapter" else self.which
        numbers: dict[str, Any] = self.result.get(kind) or {}
        return numbers

    @property
    def envs(self) -> list[tuple[str, dict[str, Any]]]:
        """Id and constructor arguments of each environment."""
        tables, shared = as_entries(self.config.get("env", "KuhnPoker-v0")), self.config.get("env_args", {})
        return [(t["id"], with_none({**t.get("args", {}), **shared})) for t in tables]


def open_run(spec: str, scratch: Path) -> Source:
    """The run named `runs/x`, `runs/x@last`, `runs/x@average`, `runs/x@best` or `runs/x@step_40`.

    Args:
        spec: the name of the run.
        scratch: a folder for the adapter of a checkpoint. Such a run need not have finished.

    Raises:
        ExportError: it is not a run, has not finished, or has no such weights.
        PolicyError: the checkpoint was not kept.
    """
    from legos_train.rollout.players import words

    name, which = words.run_and_weights(spec)
    path = Path(name)
    if not (path / "config.toml").is_file():
        raise ExportError(f"{name!r} is not a run directory (no config.toml in it)")
    data = (path / "config.toml").read_bytes()
    try:
        config = _absolute(tomllib.loads(data.decode()), path)
        if is_checkpoint(which):
            _, adapter = unpack(spec, scratch)
            result = _until(path, int(adapter.name.removeprefix("step_")))
        else:
            adapter = path / (which or "adapter")
            result = RunDirectory(path).read_json("result.json")
    except FileNotFoundError:
        raise ExportError(
            f"{name!r} has no result.json: the run has not finished; continue with --resume, or export RUN@step_N"
        ) from None
    except (ExportError, PolicyError):
        raise
    except ValueError as error:
        raise ExportError(f"{name!r} cannot be read: {error}") from None
    source = Source(path, config, hashlib.sha256(data).hexdigest(), result, which or "adapter", adapter)
    valid = which in ("", "last", "average", "best") or is_checkpoint(which)
    if valid and (several := sorted(found.parent.name for found in adapter.glob(f"*/{peft.CONFIG}"))):
        raise ExportError(
            f"{spec!r} has the adapters of several learners, {', '.join(several)}, and a card is for one; export each "
            f"with `legos export peft {adapter / several[0]} OUT --base-model ORGANISATION/NAME`"
        )
    if not valid or not (adapter / peft.CONFIG).is_file():
        raise ExportError(
            f"{spec!r}: the run has no adapter {source.which!r}; available: RUN, RUN@last, RUN@average, RUN@best and "
            "RUN@step_N"
        )
    return source


def _until(path: Path, step: int) -> dict[str, Any]:
    """The contents of a `result.json` for a checkpoint: the numbers before, and those of its step if evaluated."""
    records, start, _ = read_run(path)
    evaluation = next((row.get("eval") or {} for row in records if row["step"] == step), {})
    last, _ = eval_numbers.by_weights(evaluation)
    return {"steps": step, "start": start, f"step_{step}": last, "published": f"step_{step}"}


def _absolute(value: Any, run: Path) -> Any:
    """Settings in which the paths of files are absolute.

    They are relative to where the run was started, which is the folder of an export, or one above the run.
    """
    if isinstance(value, dict):
        return {key: _absolute(inner, run) for key, inner in value.items()}
    if isinstance(value, list):
        return [_absolute(inner, run) for inner in value]
    if isinstance(value, str) and "/" in value and "://" not in value:
        for folder in (Path.cwd(), *run.absolute().parents):
            if os.path.exists(folder / value):
                return str(folder / value)
    return value
