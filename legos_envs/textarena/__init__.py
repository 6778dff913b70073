"""TextArena's games as environments. `env` has the page, `guest` the isolation, `legal` and `players` what can be said.

Inside this package `import textarena` is the installed one, and happens only when an env is made.
"""

from legos_envs.textarena.ids import GAMES, NAMESPACE, REFUSED, env_id, refusal

__all__ = ["GAMES", "NAMESPACE", "REFUSED", "env_id", "refusal"]
