"""The league: who the learner plays against, and what is known about them.

    league = League(LeagueSettings(mode="psro"), seed=0)
    plan = league.plan(step, number, seats, roles)   # agent -> opponent; {} is mirror play
    mark(episode, plan)                              # only the learner's tokens are trained on
    league.observe(episodes, plans)

| mode | an opponent is drawn |
|---|---|
| `mirror` | never: the learner sits in all seats |
| `fsp` | uniformly from the pool (fictitious self-play, Heinrich et al. 2015) |
| `pfsp` | by how hard it is: (1 - win rate against it) ** power (AlphaStar, Vinyals et al. 2019) |
| `psro` | from the equilibrium of the pool's payoff matrix (Lanctot et al. 2017) |
| `fixed` | uniformly from `league.opponents` |
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
