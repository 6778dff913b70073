"""Games that can be solved: pure rules (`Game`), and the environment that plays them (`GameEnv`).

The env and the solvers in `legos_envs.exact` read the same `Game`, so they cannot disagree about the rules.
"""

from legos_envs.game.game_env import GameEnv
from legos_envs.game.game_rules import MAX_STATES, ExactPolicy, Game, InfoSet, State, info_set

__all__ = ["MAX_STATES", "ExactPolicy", "Game", "GameEnv", "InfoSet", "State", "info_set"]
