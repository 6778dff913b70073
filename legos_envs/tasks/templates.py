"""Texts from templates: slots such as `{things}` are filled with words from lists.

    made = Templates(["Put the {things} beside the {things2}."], {"things": ["lamp", "chair"]})
    made.draw(rng)

A digit after a name stands for another word of the same list, so `{things}` and `{things2}` differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import perm, prod

import numpy as np

_SLOT = re.compile(r"\{(([a-z]+)\d?)\}")
HAND_WRITTEN = 8
"""Where handwritten items are mixed with items from templates, one in this many is handwritten."""


class Templates:
    """Templates, and words for their slots.

    Args:
        templates: texts with slots.
        words: the list for each slot, by name.
    """

    def __init__(self, templates: Sequence[str], words: Mapping[str, Sequence[str]]):
        self.templates, self.words = tuple(templates), {name: tuple(list_) for name, list_ in words.items()}
        self.sizes = [self._size(template) for template in self.templates]

    def __len__(self) -> int:
        """The number of possible texts."""
        return sum(self.sizes)

    def _size(self, template: str) -> int:
        names = [name for _, name in dict.fromkeys(_SLOT.findall(template))]
        return prod(perm(len(self.words[name]), names.count(name)) for name in set(names))

    def draw(self, rng: np.random.Generator) -> str:
        """A random template with random words, capitalised."""
        template = self.templates[int(rng.integers(len(self.templates)))]
        chosen: dict[str, str] = {}
        for slot, name in dict.fromkeys(_SLOT.findall(template)):
            left = [word for word in self.words[name] if word not in chosen.values()]
            chosen[slot] = left[int(rng.integers(len(left)))]
        text = _SLOT.sub(lambda match: chosen[match[1]], template)
        return text[:1].upper() + text[1:]

    def draw_beside(self, rng: np.random.Generator, hand_written: Sequence[str]) -> str:
        """A text from a template or, one time in `HAND_WRITTEN`, a handwritten one."""
        if rng.integers(HAND_WRITTEN) == 0:
            return hand_written[int(rng.integers(len(hand_written)))]
        return self.draw(rng)
