"""A model's identity: digests that a server and a trainer compare before the first step. Does not load MLX."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

PROTOCOL = 3
"""Version of Legos's extensions to OpenAI's API; clients and servers with different versions do not work together."""


def tokenizer_digest(model_dir: str | Path) -> str:
    """SHA-256 of the tokenizer's file; "" if the directory has none."""
    for name in ("tokenizer.json", "tokenizer.model"):
        file = Path(model_dir) / name
        if file.is_file():
            return hashlib.sha256(file.read_bytes()).hexdigest()
    return ""


def template_digest(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's chat template; "" if it has none."""
    return hashlib.sha256(str(getattr(tokenizer, "chat_template", "") or "").encode()).hexdigest()
