"""Exact numbers for small games: expected returns, best responses, NashConv and equilibria, for any `Game`.

from legos_envs import exact
exact.nash_conv(env.game, policy)       # policy: InfoSet -> {move: probability}
"""

from legos_envs.exact.cfr import TOLERANCE
from legos_envs.exact.graph import graph_of, info_sets, uniform
from legos_envs.exact.minimax import no_loss_rate, optimal_move_probability
from legos_envs.exact.solve import best_response, expected_returns, nash, nash_conv

__all__ = [
    "TOLERANCE",
    "best_response",
    "expected_returns",
    "graph_of",
    "info_sets",
    "nash",
    "nash_conv",
    "no_loss_rate",
    "optimal_move_probability",
    "uniform",
]
