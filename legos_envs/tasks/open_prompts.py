"""Thousands of open prompts from the templates in `data/open_prompts.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from legos_envs.tasks.splits import draw_of_split
from legos_envs.tasks.templates import Templates

_DATA = tomllib.loads((Path(__file__).with_name("data") / "open_prompts.toml").read_text(encoding="utf-8"))
MADE = Templates(_DATA["templates"], _DATA["words"])
QUESTIONS = Templates([text for text in _DATA["templates"] if "?" in text], _DATA["words"])


def draw(rng: np.random.Generator, hand_written: Sequence[str], split: str, made: Templates = MADE) -> str:
    """A prompt of a split: occasionally a handwritten one, otherwise one from a template."""
    return draw_of_split(lambda: made.draw_beside(rng, hand_written), split)
