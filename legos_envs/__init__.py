"""Multi-agent text environments for self-play, as PettingZoo AEC environments.

    env = legos_envs.make("KuhnPoker-v0")

Importing registers the built-in environments under PettingZoo's namespace `legos/`; their modules load when made.
"""

from legos_envs.game import Game, GameEnv, InfoSet
from legos_envs.play import Decision, Policy, Runner, play, play_many
from legos_envs.records import Episode, Trajectory, Turn
from legos_envs.registry import UnknownEnv, make, pprint_registry, register, registered, spec
from legos_envs.table import Forfeit, InvalidMove, Rules, Seat, Table, Truncated
from legos_envs.text_env import TextEnv

__version__ = "0.1.0"

_BUILT_IN = {
    "KuhnPoker-v0": "kuhn_poker:KuhnPoker",
    "MatrixGame-v0": "matrix_game:MatrixGame",
    "Nim-v0": "nim:Nim",
    "TicTacToe-v0": "tic_tac_toe:TicTacToe",
}
for _id, _where in _BUILT_IN.items():
    register(_id, f"legos_envs.games.{_where}")

__all__ = [
    "Decision",
    "Episode",
    "Forfeit",
    "Game",
    "GameEnv",
    "InfoSet",
    "InvalidMove",
    "Policy",
    "Rules",
    "Runner",
    "Seat",
    "Table",
    "TextEnv",
    "Trajectory",
    "Truncated",
    "Turn",
    "UnknownEnv",
    "make",
    "play",
    "play_many",
    "pprint_registry",
    "register",
    "registered",
    "spec",
]
