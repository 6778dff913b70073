"""LoRA adapters in PEFT's layout, which vLLM reads: two files in a folder, named after the adapter.

    here (mlx-lm)                                PEFT (`adapter_model.safetensors`)
    model.layers.0.self_attn.q_proj.lora_a       base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
      (in, r)                                      (r, in)
    ....lora_b (r, out)                          ....lora_B.weight (out, r)
    scale                                        lora_alpha / r

Both mean `W + scale * (A B)^T` (Hu et al. 2021, arXiv 2106.09685).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from inference.files import tensors
from inference.files.adapter_folder import CONFIG, PEFT_WEIGHTS
from inference.types import AdapterError

_NAME = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)(?:\.default)?\.weight")
_LAYER = re.compile(r"model\.layers\.(\d+)\..+")


def peft_name(name: str) -> str:
    """PEFT's name for the matrix called `LAYER.lora_a` or `LAYER.lora_b` here."""
    path, _, leaf = name.rpartition(".")
    return f"base_model.model.{path}.lora_{leaf[-1].upper()}.weight"


def own_name(name: str) -> str | None:
    """The inverse of `peft_name`; None if it is not a LoRA matrix of a linear layer."""
    found = _NAME.fullmatch(name)
    return None if found is None else f"{found[1]}.lora_{found[2].lower()}"


def peft_config(layers: Iterable[str], rank: int, scale: float, base_model: str) -> dict[str, Any]:
    """PEFT's `adapter_config.json`.

    Args:
        layers: the adapted layers, such as `model.layers.0.self_attn.q_proj`.
        rank: of every layer.
        scale: factor on the product of A and B.
        base_model: the repository or path of the base; vLLM's resolver compares it with its
            `--model`, letter by letter.
    """
    layers = list(layers)
    numbers = {int(found[1]) for path in layers if (found := _LAYER.fullmatch(path))}
    partial = bool(numbers) and min(numbers) > 0
    alpha = scale * rank
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({path.rpartition(".")[2] for path in layers}),
        "layers_to_transform": sorted(numbers) if partial else None,
        "layers_pattern": "layers" if partial else None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_dora": False,
        "use_rslora": False,
        "modules_to_save": None,
    }


def peft_files(body: bytes, scale: float, base_model: str) -> dict[str, bytes]:
    """The files of a PEFT folder.

    Args:
        body: a safetensors file with the matrices under our names.
        scale: factor on the product of A and B.
        base_model: see `peft_config`.
    """
    matrices = tensors.parse(body).tensors
    rank = next(matrix.values.shape[1] for name, matrix in matrices.items() if name.endswith(".lora_a"))
    config = peft_config({name.rpartition(".")[0] for name in matrices}, rank, scale, base_model)
    renamed = {peft_name(name): matrix.transposed for name, matrix in matrices.items()}
    return {
        PEFT_WEIGHTS: tensors.render(renamed, {"format": "pt", "scale": repr(float(scale))}),
        CONFIG: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
    }


def rank_and_scale(config: Mapping[str, Any]) -> tuple[int, float]:
    """The rank and the scale in PEFT's config.

    Raises:
        AdapterError: it is not a plain LoRA of one rank.
    """
    plain = {"peft_type": "LORA", "use_dora": False, "bias": "none", "alora_invocation_tokens": None}
    for name, wanted in plain.items():
        if (config.get(name) or wanted) != wanted or (name == "peft_type" and not config.get(name)):
            raise AdapterError(f"{CONFIG}: plain LoRA without biases is accepted, got {name} = {config.get(name)!r}")
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    numbers = bool not in (type(rank), type(alpha)) and isinstance(rank, int) and isinstance(alpha, int | float)
    if not numbers or rank < 1 or not math.isfinite(alpha):
        raise AdapterError(f"{CONFIG}: r of at least 1 and a finite lora_alpha are needed, got {rank!r} and {alpha!r}")
    for pattern in ("rank_pattern", "alpha_pattern"):
        if config.get(pattern):
            raise AdapterError(f"{CONFIG}: {pattern} = {config[pattern]!r}; one rank and one scale are accepted")
    return rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def from_peft(body: bytes, config: Mapping[str, Any]) -> tuple[dict[str, tensors.Tensor], float, int]:
    """The matrices of a PEFT folder under our names, with their scale and rank.

    Raises:
        AdapterError: it is not a plain LoRA of one rank.
    """
    rank, scale = rank_and_scale(config)
    file = tensors.parse(body)
    matrices = {}
    for name, matrix in file.tensors.items():
        own = own_name(name)
        if own is None:
            raise AdapterError(f"{PEFT_WEIGHTS}: {name} is no LoRA matrix of a linear layer")
        matrices[own] = matrix.transposed
    try:  # alpha / r may differ from the scale in the last bit
        exact = float(file.metadata.get("scale", scale))
    except ValueError:
        exact = scale
    return matrices, exact if math.isclose(exact, scale, rel_tol=1e-12) else scale, rank
