"""All mutants."""

from __future__ import annotations

from tests.mutants import envs, learning, measuring, serving, wiring
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *wiring.MUTANTS,
    *learning.MUTANTS,
    *measuring.MUTANTS,
    *serving.MUTANTS,
    *envs.MUTANTS,
]
