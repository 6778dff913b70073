"""Games: rules, exact solutions where available, scripted players."""

from legos_envs.games.matrix_game import MATRIX_GAMES

__all__ = ["MATRIX_GAMES"]
