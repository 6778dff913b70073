"""What a report may say of the environment: no keys, no passwords in addresses, no name of the user."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

PREFIXES = (
    "LEGOS_", "HF_", "HUGGINGFACE", "TRANSFORMERS_", "MLX_", "OPENBLAS_", "OMP_", "MKL_", "VECLIB_", "CUDA_", "WANDB_",
    "TRACKIO_", "OPENAI_", "OPENROUTER_", "PYTHON", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy",
    "https_proxy", "no_proxy", "VIRTUAL_ENV", "CONDA_PREFIX",
)  # fmt: skip
ALWAYS = ("HF_TOKEN", "LEGOS_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "WANDB_API_KEY")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|PWD", re.IGNORECASE)
HIDDEN = tuple(
    (re.compile(pattern, re.IGNORECASE), left)
    for pattern, left in (
        (r"(\w+://)[^/@\s]*@", r"\1***@"),  # user and password of an address
        (r"(?<![\w/:@*])[^\s/:@=]+:[^\s/@]+@(?=[\w\[])", "***@"),  # the same without a scheme
        (r"([?&][^=&\s]*(?:key|token|secret|pass|sig)[^=&\s]*=)[^&\s]+", r"\1***"),
        (r"\b((?:api[-_]?key|token|secret|password|passwd)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&*]+", r"\1***"),
        (r"\b(bearer|basic)(\s+)[^\s\"',;]+", r"\1\2***"),
        (r"\b(?:sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox[abpr]-|AKIA)[\w-]{8,}", "***"),  # keys by their shape
    )
)
"""What looks like a secret, and what is left of it."""


def tidy(value: Any) -> Any:
    """The value with what looks like a secret hidden and the home directory shortened."""
    if isinstance(value, Mapping):
        return {key: tidy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(inner) for inner in value]
    if not isinstance(value, str):
        return value
    for pattern, left in HIDDEN:
        value = pattern.sub(left, value)
    home = os.path.expanduser("~")
    return re.sub(re.escape(home) + r"(?=/|:|$)", "~", value) if len(home) > 1 else value


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter here; those whose names look like secrets as "set" or "not set" only."""
    found = {}
    for name in sorted({*variables, *ALWAYS}):
        if name in ALWAYS or (name.startswith(PREFIXES) and SECRET.search(name)):
            found[name] = "set (hidden)" if variables.get(name) else "not set"
        elif name.startswith(PREFIXES):
            found[name] = variables[name]
    return found
