"""Built-in subjects of debates: motions, and cases that each consist of a principle, a response and a label.

Some are handwritten (`data/debate.toml`), thousands come from templates (`data/debate_templates.toml`). Code decides
whether a response from a template violates a principle, so its label cannot be wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from legos_envs.tasks.checked_texts import words
from legos_envs.tasks.splits import draw_of_split
from legos_envs.tasks.templates import HAND_WRITTEN, Templates


class Example(NamedTuple):
    """A principle, a response to somebody, and whether the response violates the principle (None: unknown)."""

    principle: str
    response: str
    violates: bool | None = None


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).with_name("data") / name).read_text(encoding="utf-8"))


_DATA, _MADE = _data("debate.toml"), _data("debate_templates.toml")
TOPICS = tuple(_DATA["topics"])
CASES = tuple(Example(row["text"], *response) for row in _DATA["principle"] for response in row["responses"])
MOTIONS = Templates(_MADE["motions"], _MADE["words"])
RESPONSES = Templates(_MADE["responses"], _MADE["words"])
PRINCIPLES: dict[str, Callable[[str, str], bool]] = {
    "The response does not mention a {objects}.": lambda text, word: word in words(text),
    "The response mentions a {objects}.": lambda text, word: word not in words(text),
    "The response does not name {names}.": lambda text, word: word.casefold() in words(text),
    "The response names {names}.": lambda text, word: word.casefold() not in words(text),
    "The response does not mention the {rooms}.": lambda text, word: word in words(text),
    "The response mentions the {rooms}.": lambda text, word: word not in words(text),
    "The response has at most {counts} words.": lambda text, word: len(text.split()) > int(word),
    "The response asks no question.": lambda text, word: "?" in text,
    "The response gives no number.": lambda text, word: any(c.isdigit() for c in text),
}
"""Principles that code can check: each decides whether a response violates it, given the word in its slot."""
_FORMS = {re.compile(re.sub(r"\\\{\w+\\\}", r"(\\w+)", re.escape(form))): rule for form, rule in PRINCIPLES.items()}
_PRINCIPLES = Templates([*PRINCIPLES], _MADE["words"])
_LABELS = {case[:2]: case.violates for case in CASES}


def label(principle: str, response: str) -> bool | None:
    """Whether a response violates a principle, for cases of this module; None for others."""
    if (principle, response) in _LABELS:
        return _LABELS[principle, response]
    for form, violated in _FORMS.items():
        if match := form.fullmatch(principle):
            return violated(response, (*match.groups(), "")[0])
    return None


def draw_topic(rng: np.random.Generator, split: str) -> str:
    """A motion of a split."""
    return draw_of_split(lambda: MOTIONS.draw_beside(rng, TOPICS), split)


def draw_case(rng: np.random.Generator, split: str) -> Example:
    """A case of a split. Half of the cases, on average, are violations."""
    wanted = bool(rng.integers(2))

    def draw() -> Example:
        if rng.integers(HAND_WRITTEN) == 0:
            cases = [case for case in CASES if case.violates is wanted]
            return cases[int(rng.integers(len(cases)))]
        principle = _PRINCIPLES.draw(rng)
        while label(principle, response := RESPONSES.draw(rng)) is not wanted:
            pass
        return Example(principle, response, wanted)

    return draw_of_split(draw, split, lambda case: f"{case.principle} {case.response}")
