"""All mutants, part by part."""

from __future__ import annotations

from tests.mutants import (
    attention,
    credit,
    disk,
    engine,
    evaluation,
    games,
    league,
    learner,
    loss,
    population,
    publishing,
    running,
    seats,
    tasks,
    tinker,
    wiring,
)
from tests.mutants.mutant import Mutant

PARTS = (
    wiring,
    credit,
    loss,
    learner,
    seats,
    league,
    running,
    evaluation,
    disk,
    engine,
    attention,
    publishing,
    games,
    population,
    tasks,
    tinker,
)
MUTANTS: list[Mutant] = [mutant for part in PARTS for mutant in part.MUTANTS]
