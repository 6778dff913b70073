"""Multi-agent text environments for self-play, as PettingZoo AEC environments.

    env = legos_envs.make("KuhnPoker-v0")

Importing registers the built-in environments under PettingZoo's namespace `legos/`, and TextArena's games under
`TextArena/`; their modules load when an environment is created. Gymnasium creates a single seat under the same names:
`gymnasium.make("legos_envs:legos/KuhnPoker-v0", agent=...)`.
"""

import gymnasium

from legos_envs.game import Game, GameEnv, InfoSet
from legos_envs.play import Decision, Policy, Runner, play, play_many
from legos_envs.records import Episode, Trajectory, Turn
from legos_envs.registry import BadArguments, UnknownEnv, make, pprint_registry, refuse, register, registered, spec
from legos_envs.scoring import Rubric, Scores
from legos_envs.table import Forfeit, InvalidMove, Rules, Seat, Table, Truncated, Unscored
from legos_envs.text_env import TextEnv
from legos_envs.textarena import GAMES, REFUSED, env_id, refusal

__version__ = "0.1.0"

_BUILT_IN = {
    "Board, card and matrix games": {
        "KuhnPoker-v0": "games.kuhn_poker:KuhnPoker",
        "LeducPoker-v0": "games.leduc_poker:LeducPoker",
        "TicTacToe-v0": "games.tic_tac_toe:TicTacToe",
        "ConnectFour-v0": "games.connect_four:ConnectFour",
        "Nim-v0": "games.nim:Nim",
        "PigDice-v0": "games.pig_dice:PigDice",
        "MatrixGame-v0": "games.matrix_game:MatrixGame",
    },
    "Bluff and trade": {
        "LiarsDice-v0": "games.liars_dice:LiarsDice",
        "SimpleNegotiation-v0": "games.simple_negotiation:SimpleNegotiation",
        "Negotiation-v0": "games.negotiation:Negotiation",
    },
    "Argument and contest": {
        "Debate-v0": "tasks.argument.debate:Debate",
        "RedBlue-v0": "tasks.code.red_blue:RedBlue",
        "HeadToHead-v0": "tasks.contests.head_to_head:HeadToHead",
        "Tournament-v0": "tasks.contests.tournament:Tournament",
        "EloArena-v0": "tasks.contests.elo_arena:EloArena",
    },
    "Problems and proofs": {
        "GSM8K-v0": "tasks.problems.gsm8k:GSM8K",
        "Dataset-v0": "tasks.problems.dataset:Dataset",
        "ProofVerification-v0": "tasks.argument.proof_verification:ProofVerification",
        "CodeGen-v0": "tasks.code.code_gen:CodeGen",
        "ProposerSolver-v0": "tasks.problems.proposer_solver:ProposerSolver",
        "SPICE-v0": "tasks.problems.spice:SPICE",
    },
    "Working together": {
        "RefineLoop-v0": "tasks.argument.refine_loop:RefineLoop",
        "PlanExecute-v0": "tasks.together.plan_execute:PlanExecute",
        "Amplification-v0": "tasks.together.amplification:Amplification",
        "EnsembleVote-v0": "tasks.problems.ensemble_vote:EnsembleVote",
        "SelfDistillation-v0": "tasks.problems.self_distillation:SelfDistillation",
    },
}
"""The single list of built-in environments, by family, as shown in the guide, the README and `legos envs list`."""
for _family, _rows in _BUILT_IN.items():
    for _id, _where in _rows.items():
        register(_id, f"legos_envs.{_where}", family=_family)
        gymnasium.register(f"legos/{_id}", "legos_envs.wrappers.single_agent:make_seat", kwargs={"env_id": _id})
for _game in GAMES | REFUSED:
    if (_reason := refusal(_game)) is None:
        register(env_id(_game), "legos_envs.textarena.env:TextArena", game=_game)
    else:
        refuse(env_id(_game), _reason)

__all__ = [
    "BadArguments",
    "Decision",
    "Episode",
    "Forfeit",
    "Game",
    "GameEnv",
    "InfoSet",
    "InvalidMove",
    "Policy",
    "Rubric",
    "Rules",
    "Runner",
    "Scores",
    "Seat",
    "Table",
    "TextEnv",
    "Trajectory",
    "Truncated",
    "Turn",
    "UnknownEnv",
    "Unscored",
    "make",
    "play",
    "play_many",
    "pprint_registry",
    "register",
    "registered",
    "spec",
]
