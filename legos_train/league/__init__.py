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

from .league import LEARNER, League
from .matchmaking import mark
from .nash import meta_nash, role_nash
from .payoffs import Score
from .pool import read_run

__all__ = ["LEARNER", "League", "Score", "mark", "meta_nash", "read_run", "role_nash"]
