"""TextArena's games as environments. `env` has the page, `guest` the isolation, `legal` and `players` the actions.

Inside this package `import textarena` refers to the installed package, and happens only when an env is created.
"""

from legos_envs.textarena.ids import GAMES, REFUSED, env_id, refusal

__all__ = ["GAMES", "REFUSED", "env_id", "refusal"]
