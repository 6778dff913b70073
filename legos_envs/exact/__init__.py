"""Exact truth about small games: expected returns, best responses, NashConv, equilibria, minimax.

from legos_envs import exact
exact.nash_conv(env.game, policy)       # policy: InfoSet -> {move: probability}
"""

from legos_envs.exact.graph import info_sets, uniform
from legos_envs.exact.minimax import minimax_policy, no_loss_rate, optimal_move_probability, win_draw_loss
from legos_envs.exact.solve import best_response, expected_returns, nash, nash_conv

__all__ = [
    "best_response",
    "expected_returns",
    "info_sets",
    "minimax_policy",
    "nash",
    "nash_conv",
    "no_loss_rate",
    "optimal_move_probability",
    "uniform",
    "win_draw_loss",
]
