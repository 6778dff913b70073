"""A run as a folder for a model hub: the adapter for mlx-lm and for PEFT, and a model card.

Nothing is sent anywhere unless `push` is called. The card only has facts from the run's own files: numbers
before and after with their seeds, its opponents, the settings, and a hash of the config file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inference import BUNDLED
from inference.files import tensors
from legos_train.disk import fsops
from legos_train.errors import ExportError
from legos_train.export import peft
from legos_train.export.card import card, trained_on
from legos_train.export.folder import fresh_folder
from legos_train.export.run_source import Source


def write_folder(
    source: Source, out: Path, *, base_model: str | None = None, license: str | None = None, overwrite: bool = False
) -> list[str]:
    """Writes the folder and returns the files in it.

    Args:
        source: the run.
        out: the folder to write.
        base_model: repository of the original weights; needed for a quantized or local model. Without it a run of
            `tiny` is only exported for Legos and mlx-lm.
        license: for the card's metadata, such as `mit`; none by default.
        overwrite: replace existing files.

    Raises:
        ExportError: the adapter cannot be exported, or a base model must be named.
    """
    named = source.config.get("model", "tiny")
    base = None if named in BUNDLED and base_model is None else peft.original_model(named, base_model)
    weights = _checked(source.adapter / peft.WEIGHTS)
    if (out / "config.toml").exists():
        raise ExportError(f"{str(out)!r} is a run directory; give another folder")
    readme = card(source, base, license).encode()  # before anything is written: it needs a package of the extra
    fresh_folder(out, overwrite=overwrite)
    for old in (peft.PEFT_WEIGHTS, peft.CONFIG):  # of an earlier export
        (out / "peft" / old).unlink(missing_ok=True)
    if base is not None:
        peft.to_peft(source.adapter, out / "peft", base, overwrite=overwrite)
    config, _ = peft.read_config(source.adapter / peft.CONFIG)
    own = trained_on(named, base)
    config["legos"] = {**config.get("legos", {}), "base_model": own}
    fsops.write_bytes(out / peft.WEIGHTS, weights)
    fsops.write_bytes(out / peft.CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    fsops.write_bytes(out / "README.md", readme)
    files = ["README.md", peft.CONFIG, peft.WEIGHTS]
    if base is not None:
        _forget_paths(out / "peft", config)
        files += [f"peft/{peft.CONFIG}", f"peft/{peft.PEFT_WEIGHTS}"]
    return files


def push(folder: Path, files: Sequence[str], repo: str, *, private: bool = True) -> str:
    """Uploads files of a folder to the Hugging Face hub, and returns their address.

    The token is the one stored by the hub's tools.

    Raises:
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    created = api.create_repo(repo, private=private, exist_ok=True)
    told = "Adapter trained with Legos"
    api.upload_folder(repo_id=repo, folder_path=str(folder), allow_patterns=[*files], commit_message=told)
    return str(created)


def _checked(source: Path) -> bytes:
    """The checked file of weights: a damaged one must not be published."""
    if bad := sorted(name for name, matrix in peft.read_matrices(source).tensors.items() if not matrix.finite):
        raise ExportError(f"{bad[0]} holds NaN or infinity; nothing was exported")
    return source.read_bytes()


def _forget_paths(folder: Path, config: Mapping[str, Any]) -> None:
    """Puts the published mlx-lm config into the PEFT file's metadata."""
    matrices, metadata, _ = peft.read_matrices(folder / peft.PEFT_WEIGHTS)
    metadata["mlx_lm_config"] = json.dumps(config, indent=2, sort_keys=True) + "\n"
    fsops.write_bytes(folder / peft.PEFT_WEIGHTS, tensors.render(matrices, metadata))
