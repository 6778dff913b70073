"""The league: who the learner plays against, and what is known about them.

    league = League(LeagueSettings(mode="psro"), seed=0)
    plan = league.plan(step, number, seats, roles)   # agent -> opponent; {} is mirror play
    mark(episode, plan)                              # only the learner's tokens are trained on
    league.observe(episodes, plans)

`MODES` holds the ways to draw opponents by name; the docs have a page for each.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
