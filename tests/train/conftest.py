"""What runs load again and again, loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx_lm.utils
import pytest

import inference


@pytest.fixture(scope="session", autouse=True)
def bundled_tokenizers_are_loaded_once() -> Iterator[None]:
    """Reading one takes longer than a step of a small run, and nothing changes it."""
    bundled, load = Path(inference.__file__).parent / "models", mlx_lm.utils.load_tokenizer
    kept: dict[tuple[str, str], Any] = {}

    def once(path: str | Path, extra: Any = None, **options: Any) -> Any:
        if extra or Path(path).parent != bundled:
            return load(path, extra, **options)
        key = str(path), repr(options)
        if key not in kept:
            kept[key] = load(path, **options)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlx_lm.utils, "load_tokenizer", once)
        yield
