"""The league: who the learner plays against, and what is known about them.

    league = League(settings.League(mode="psro"), seed=0)
    plan = league.plan(step, number, seats, roles)   # agent -> opponent; {} is mirror play
    mark(episode, plan)                              # only the learner's tokens are trained
    league.observe(episodes, plans)

| mode | an opponent is drawn |
|---|---|
| `mirror` | never: the learner sits in all seats |
| `fsp` | uniformly from the pool (fictitious self-play, Heinrich et al. 2015) |
| `pfsp` | by how hard it is: (1 - win rate against it) ** power (AlphaStar, Vinyals et al. 2019) |
| `psro` | from the equilibrium of the pool's payoff matrix (Lanctot et al. 2017) |
| `fixed` | uniformly from `league.opponents` |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legos_train.league.league import LEARNER, League
    from legos_train.league.nash import meta_nash, role_nash
    from legos_train.league.payoffs import Score
    from legos_train.league.pool import read_run
    from legos_train.league.seating import mark

__all__ = ["LEARNER", "League", "Score", "mark", "meta_nash", "read_run", "role_nash"]

_HOME = {
    "LEARNER": "league",
    "League": "league",
    "Score": "payoffs",
    "mark": "seating",
    "meta_nash": "nash",
    "read_run": "pool",
    "role_nash": "nash",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: equilibria are computed without MLX, a pool of adapters is not."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
