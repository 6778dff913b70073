"""mlx-lm's LoRA layout to PEFT's and back.

    mlx-lm (`adapters.safetensors`)              PEFT (`adapter_model.safetensors`)
    model.layers.0.self_attn.q_proj.lora_a       base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
      (in, r)                                      (r, in)
    ....lora_b (r, out)                          ....lora_B.weight (out, r)
    lora_parameters.scale                        lora_alpha / r
    num_layers, counted from the last            layers_to_transform, only when the first layers are left out

Both mean `W + scale * (A B)^T` (Hu et al. 2021, arXiv 2106.09685). The matrices are copied bit for bit. The PEFT
file carries mlx-lm's config and header as text in its metadata, so that converting back gives the same bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inference import BUNDLED, AdapterError
from inference.files import peft_files, tensors
from inference.files.adapter_folder import CONFIG as CONFIG  # noqa: PLC0414
from inference.files.adapter_folder import PEFT_WEIGHTS as PEFT_WEIGHTS  # noqa: PLC0414
from inference.files.adapter_folder import WEIGHTS as WEIGHTS  # noqa: PLC0414
from legos_train.disk import fsops
from legos_train.errors import ExportError
from legos_train.export.folder import fresh_folder

_LAYER = re.compile(r"model\.layers\.(\d+)\.([\w.]+)")
_QUANTIZED = re.compile(r"mlx-community/|\d-?bit\b|[-_.](q\d|int\d|awq|gptq|dwq|mxfp\d|nvfp\d)", re.IGNORECASE)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w.-]+)?")

_PLAIN = {
    "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform", "loftq_config",
    "lora_alpha", "lora_dropout", "lora_ga_config", "megatron_core", "peft_type", "peft_version", "qalora_group_size",
    "r", "revision", "runtime_config", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
"""Keys of PEFT's config that do not affect plain LoRA (A, B and a scale): where it is and how it was initialised."""

Layers = dict[str, tuple[tensors.Tensor, tensors.Tensor]]
"""Layer path -> A (in, r), B (r, out), in mlx-lm's layout."""


def to_peft(adapter: Path, out: Path, base_model: str, *, overwrite: bool = False) -> list[str]:
    """Writes a folder that `peft.PeftModel.from_pretrained(model, folder)` and vLLM read.

    Args:
        adapter: a folder in mlx-lm's layout.
        out: the folder to write.
        base_model: the repository of the original weights; see `original_model`.
        overwrite: replace existing files.

    Returns:
        The adapted layer paths, such as `model.layers.0.self_attn.q_proj`.

    Raises:
        ExportError: the adapter is DoRA, damaged, not finite, or changes something that has no counterpart in PEFT.
        OSError: a file cannot be written.
    """
    config, config_text = read_config(adapter / CONFIG)
    kind, parameters = config.get("fine_tune_type", "lora"), config.get("lora_parameters")
    if kind != "lora" or not isinstance(parameters, dict):
        raise ExportError(f"{adapter / CONFIG}: only LoRA can be exported, got fine_tune_type {kind!r}")
    rank, scale = parameters.get("rank"), parameters.get("scale")
    if not isinstance(rank, int) or rank < 1 or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise ExportError(f"{adapter / CONFIG}: needs rank >= 1 and a finite scale, got {rank!r} and {scale!r}")
    file = read_matrices(adapter / WEIGHTS)
    layers = _pairs(file.tensors, adapter / WEIGHTS, rank)
    peft_config = peft_files.peft_config(layers, rank, scale, base_model)
    matrices = {peft_files.peft_name(name): matrix.transposed for name, matrix in file.tensors.items()}
    metadata = {"format": "pt", "mlx_lm_config": config_text, "mlx_lm_header": file.header}
    fresh_folder(out, overwrite=overwrite)
    fsops.write_bytes(out / PEFT_WEIGHTS, tensors.render(matrices, metadata))
    fsops.write_bytes(out / CONFIG, (json.dumps(peft_config, indent=2, sort_keys=True) + "\n").encode())
    return sorted(layers)


def to_mlx(peft: Path, out: Path, *, overwrite: bool = False) -> list[str]:
    """Writes a PEFT LoRA adapter in mlx-lm's layout, for `legos eval MODEL+FOLDER`, `legos serve` and mlx-lm.

    A folder written by `to_peft` gives back its original bytes. For others, `num_layers` becomes -1 (all):
    mlx-lm can only count layers from the last, and a layer without tensors changes nothing.

    Returns:
        The adapted layer paths.

    Raises:
        ExportError: the adapter is not plain LoRA of one rank on linear layers, is damaged or not finite.
        OSError: a file cannot be written.
    """
    config, _ = read_config(peft / CONFIG)
    for name, value in config.items():
        if value and name not in _PLAIN:
            raise ExportError(f"{peft / CONFIG}: {name} = {value!r} has no counterpart in mlx-lm's LoRA")
    try:
        rank, scale = peft_files.rank_and_scale(config)
    except AdapterError as error:
        raise ExportError(f"{peft}/{error}") from None
    matrices, metadata, _ = read_matrices(peft / PEFT_WEIGHTS)
    renamed = {_mlx_name(name, peft / PEFT_WEIGHTS): matrix.transposed for name, matrix in matrices.items()}
    layers = _pairs(renamed, peft / PEFT_WEIGHTS, rank)
    text = _own_config(metadata.get("mlx_lm_config"), rank, scale)
    if text is None:
        keys = sorted({match[2] for path in layers if (match := _LAYER.fullmatch(path))})
        parameters = {"rank": rank, "scale": scale, "dropout": 0.0, "keys": keys}
        mlx_config: dict[str, Any] = {"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": parameters}
        if config.get("base_model_name_or_path"):
            mlx_config["model"] = config["base_model_name_or_path"]
        text = json.dumps(mlx_config, indent=2, sort_keys=True) + "\n"
    fresh_folder(out, overwrite=overwrite)
    data = tensors.render(renamed, {"format": "mlx"}, header=metadata.get("mlx_lm_header", ""))
    fsops.write_bytes(out / WEIGHTS, data)
    fsops.write_bytes(out / CONFIG, text.encode())
    return sorted(layers)


def original_model(named: str | None, wanted: str | None) -> str:
    """The repository that PEFT loads the base from: as given, else as named by the adapter or the run.

    Raises:
        ExportError: nothing was given, and the run's model is quantized, `tiny`, a local folder, or unknown.
    """
    if wanted:
        return wanted
    why = None
    if not named:
        why = "the adapter does not say which model it is for"
    elif named in BUNDLED:
        why = f"`{named}` comes with Legos and is on no hub"
    elif not _HUB_NAME.fullmatch(named) or Path(named).exists():
        why = f"{named!r} is a folder on this machine"
    elif _QUANTIZED.search(named):
        why = f"{named!r} looks quantized for MLX, and PEFT and vLLM cannot load it"
    if why is None and named:
        return named.partition("@")[0]
    raise ExportError(f"{why}; name the repository of the original weights with --base-model ORGANISATION/NAME")


def read_config(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object from a file, and its text. Raises ExportError if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
        config = json.loads(text)
    except FileNotFoundError:
        raise ExportError(f"no adapter in {str(path.parent)!r}: {path.name} is missing") from None
    except ValueError as error:
        raise ExportError(f"{str(path)!r} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ExportError(f"{str(path)!r} must hold an object, got {type(config).__name__}")
    return config, text


def read_matrices(path: Path) -> tensors.TensorFile:
    """A file of LoRA matrices.

    Raises:
        ExportError: the file is missing, damaged, or holds something other than matrices of floating-point numbers.
    """
    try:
        file = tensors.parse(path.read_bytes())
    except FileNotFoundError:
        raise ExportError(f"{str(path)!r} does not exist") from None
    except ValueError as error:
        raise ExportError(f"{str(path)!r} is damaged: {error}") from None
    for name, (kind, values) in file.tensors.items():
        if kind not in ("F32", "F16", "BF16"):
            raise ExportError(f"{str(path)!r}: {name} is {kind}; accepted are F32, F16, BF16")
        if values.ndim != 2:
            raise ExportError(
                f"{str(path)!r}: {name} has shape {values.shape}; a matrix is needed (experts have no mapping)"
            )
    return file


def _pairs(matrices: Mapping[str, tensors.Tensor], file: Path, rank: int) -> Layers:
    """The tensors by layer, checked: names, partners, ranks, finite values."""
    if not matrices:
        raise ExportError(f"{str(file)!r} has no tensors")
    layers: Layers = {}
    for name in sorted(matrices):
        path, _, leaf = name.rpartition(".")
        if leaf == "m":
            raise ExportError(f"{file.name}: {name} is a DoRA magnitude; only LoRA can be exported")
        if leaf not in ("lora_a", "lora_b"):
            accepted = "accepted are names ending in lora_a and lora_b"
            raise ExportError(f"{file.name}: {name} is not a LoRA matrix; {accepted}")
        if not _LAYER.fullmatch(path):
            raise ExportError(
                f"{file.name}: {path!r} is not a linear layer of a block (model.layers.N....); adapters on embeddings, "
                "on the output head or in other model layouts are not supported"
            )
        if not matrices[name].finite:
            raise ExportError(f"{file.name}: {name} holds NaN or infinity; nothing was exported")
        if leaf == "lora_a":
            partner = matrices.get(f"{path}.lora_b")
            if partner is None:
                raise ExportError(f"{file.name}: {name} has no partner {path}.lora_b")
            ranks = matrices[name].values.shape[1], partner.values.shape[0]
            if ranks != (rank, rank):
                raise ExportError(f"{file.name}: {path} has ranks {ranks} (A, B), but {CONFIG} says {rank}")
            layers[path] = matrices[name], partner
        elif f"{path}.lora_a" not in matrices:
            raise ExportError(f"{file.name}: {name} has no partner {path}.lora_a")
    return layers


def _mlx_name(name: str, file: Path) -> str:
    own = peft_files.own_name(name)
    if own is None:
        raise ExportError(
            f"{file.name}: {name} is not a LoRA matrix of a linear layer; accepted are "
            "base_model.model.LAYER.lora_A.weight and lora_B.weight"
        )
    return own


def _own_config(text: str | None, rank: int, scale: float) -> str | None:
    """The config that `to_peft` put into the metadata, if it still agrees with PEFT's config."""
    try:
        parameters = json.loads(text or "")["lora_parameters"]
        same = parameters["rank"] == rank and math.isclose(parameters["scale"], scale, rel_tol=1e-12)
    except (ValueError, KeyError, TypeError):
        return None
    return text if same else None
