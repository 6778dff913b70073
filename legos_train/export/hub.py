"""A run as a folder for a model hub: the adapter for mlx-lm and for PEFT, and a card that says what it is.

Nothing is sent anywhere unless `push` is called. The card has what the run's own files say and nothing else: numbers
before and after with their seeds, who it played, the settings, and a hash of the config file.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference import tensors
from legos_train.disk import fsops
from legos_train.errors import ExportError, PolicyError
from legos_train.export import peft
from legos_train.export.card import card, trained_on
from legos_train.export.checkpoint_adapter import is_checkpoint, unpack
from legos_train.export.folder import fresh_folder
from legos_train.observe import eval_numbers, read_run


@dataclass(frozen=True, slots=True)
class Source:
    """A run: its directory, config as plain values, config hash, result, which weights are meant, and their folder."""

    path: Path
    config: dict[str, Any]
    digest: str
    result: dict[str, Any]
    which: str
    adapter: Path

    @property
    def after(self) -> dict[str, Any]:
        """The numbers of the weights that are exported."""
        kind = self.result["published"] if self.which == "adapter" else self.which
        numbers: dict[str, Any] = self.result.get(kind) or {}
        return numbers

    @property
    def envs(self) -> list[tuple[str, dict[str, Any]]]:
        """Id and constructor arguments of each environment."""
        entries = self.config.get("env", "KuhnPoker-v0")
        as_list = entries if isinstance(entries, list) else [entries]
        tables: list[dict[str, Any]] = [{"id": e} if isinstance(e, str) else e for e in as_list]
        shared: dict[str, Any] = self.config.get("env_args", {})
        return [(t["id"], {**t.get("args", {}), **shared}) for t in tables]


def open_run(spec: str, scratch: Path | None = None) -> Source:
    """The run called `runs/x`, `runs/x@last`, `runs/x@best` or `runs/x@step_40`.

    Args:
        scratch: a folder for the adapter of a checkpoint. Such a run need not have finished.

    Raises:
        ExportError: it is no run, has not finished, or has no such weights.
        PolicyError: the checkpoint is not kept.
    """
    name, _, which = spec.partition("@")
    path = Path(name)
    if not (path / "config.toml").is_file():
        raise ExportError(f"{name!r} is no run directory (no config.toml in it)")
    data = (path / "config.toml").read_bytes()
    try:
        config = tomllib.loads(data.decode())
        if is_checkpoint(which):
            if scratch is None:
                raise ExportError(f"{spec!r}: a checkpoint needs a scratch folder")
            _, adapter = unpack(spec, scratch)
            result = _until(path, int(adapter.name.removeprefix("step_")))
        else:
            adapter = path / (which or "adapter")
            result = json.loads((path / "result.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExportError(
            f"{name!r} has no result.json: the run has not finished; go on with --resume, or export RUN@step_N"
        ) from None
    except (ExportError, PolicyError):
        raise
    except ValueError as error:
        raise ExportError(f"{name!r} cannot be read: {error}") from None
    source = Source(path, config, hashlib.sha256(data).hexdigest(), result, which or "adapter", adapter)
    valid = which in ("", "last", "best") or is_checkpoint(which)
    if not valid or not (adapter / peft.CONFIG).is_file():
        raise ExportError(
            f"{spec!r}: the run has no adapter {source.which!r}; there are RUN, RUN@last, RUN@best and RUN@step_N"
        )
    return source


def _until(path: Path, step: int) -> dict[str, Any]:
    """What a `result.json` would say of a checkpoint: the numbers before, and those of its step if it was measured."""
    records, start, _ = read_run(path)
    evaluation = next((row.get("eval") or {} for row in records if row["step"] == step), {})
    last = {name: value for name, value in evaluation.items() if not name.endswith(eval_numbers.AVERAGE)}
    return {"steps": step, "start": start, f"step_{step}": last, "published": f"step_{step}"}


def write_folder(
    source: Source, out: Path, *, base_model: str | None = None, license: str | None = None, overwrite: bool = False
) -> list[str]:
    """Writes the folder and returns the files in it.

    Args:
        base_model: repository of the original weights; needed for a quantized or local model. Without it a run of
            `tiny` is exported for Legos and mlx-lm alone.
        license: for the card's metadata, such as `mit`; by default none is claimed.

    Raises:
        ExportError: the adapter cannot be exported, or a base model must be named.
    """
    named = source.config.get("model", "tiny")
    base = None if named == "tiny" and base_model is None else peft.original_model(named, base_model)
    weights = _checked(source.adapter / peft.WEIGHTS)
    fresh_folder(out, overwrite=overwrite)
    if base is not None:
        peft.to_peft(source.adapter, out / "peft", base, overwrite=overwrite)
    config, _ = peft.read_config(source.adapter / peft.CONFIG)
    own = trained_on(named, base)
    config["legos"] = {**config.get("legos", {}), "base_model": own}
    fsops.write_bytes(out / peft.WEIGHTS, weights)
    fsops.write_bytes(out / peft.CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    fsops.write_bytes(out / "README.md", card(source, base, license).encode())
    if base is not None and (out / "peft").is_dir():
        _forget_paths(out / "peft", config)
    return sorted(str(f.relative_to(out)) for f in out.rglob("*") if f.is_file())


def push(folder: Path, repo: str, *, private: bool = True) -> str:
    """Uploads a folder to the Hugging Face hub and returns its address. The token is the one that hub tools keep.

    Raises:
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    created = api.create_repo(repo, private=private, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=str(folder), commit_message="Adapter trained with Legos")
    return str(created)


def _checked(source: Path) -> bytes:
    """The file of weights, after a look at them: a damaged one must not be published."""
    if bad := sorted(name for name, matrix in peft.read_matrices(source).tensors.items() if not matrix.finite):
        raise ExportError(f"{bad[0]} holds NaN or infinity; nothing was exported")
    return source.read_bytes()


def _forget_paths(folder: Path, config: Mapping[str, Any]) -> None:
    """The PEFT file carries mlx-lm's config: here the one that is published beside it."""
    matrices, metadata, _ = peft.read_matrices(folder / peft.PEFT_WEIGHTS)
    metadata["mlx_lm_config"] = json.dumps(config, indent=2, sort_keys=True) + "\n"
    fsops.write_bytes(folder / peft.PEFT_WEIGHTS, tensors.render(matrices, metadata))
