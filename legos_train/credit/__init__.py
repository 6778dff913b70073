"""Credit: from finished episodes to one advantage per turn. One method per file, chosen by name.

| name | advantage of a turn |
|---|---|
| `rae` | return minus a moving baseline of its (env, role) |
| `grpo` | return minus the mean of its role in the group |
| `hierarchical_grpo` | return minus the mean of its siblings in the tree of agents |
| `same_prompt` | return minus the mean of the same prompt in other episodes |
| `constant` | one number |
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from .common import Advantages, CreditAssigner
from .constant import Constant
from .group import GRPO, HierarchicalGRPO
from .rae import RAE, Baselines
from .same_prompt import SamePrompt

METHODS: dict[str, type[Any]] = {kind.name: kind for kind in (RAE, GRPO, HierarchicalGRPO, SamePrompt, Constant)}

__all__ = [
    "GRPO",
    "METHODS",
    "RAE",
    "Advantages",
    "Baselines",
    "Constant",
    "CreditAssigner",
    "HierarchicalGRPO",
    "SamePrompt",
    "make_credit",
]


def make_credit(name: str, **options: Any) -> CreditAssigner:
    """The credit method called `name` (a key of `METHODS`) with its options.

    Raises ValueError for an unknown name or a value out of range, TypeError for an option the method does not have.
    """
    if name not in METHODS:
        raise ValueError(f"unknown credit method {name!r}{_nearest(name, METHODS)}; known: {', '.join(METHODS)}")
    accepted = inspect.signature(METHODS[name]).parameters
    for option in options:
        if option not in accepted:
            known = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise TypeError(f"credit {name!r} has no option {option!r}{_nearest(option, accepted)}; {known}")
    method: CreditAssigner = METHODS[name](**options)
    return method


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
