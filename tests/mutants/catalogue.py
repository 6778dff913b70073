"""All mutants."""

from __future__ import annotations

from tests.mutants import wiring
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [*wiring.MUTANTS]
