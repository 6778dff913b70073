"""What can be done with the name of a policy, of any of `POLICY_KINDS`: find its weights, describe it, let it play."""

from legos_train.rollout.players.cast import Cast
from legos_train.rollout.players.chat_api import is_endpoint
from legos_train.rollout.players.names import (
    PUBLISHED,
    fingerprint,
    is_code,
    locate,
    read_weights,
    run_and_weights,
    run_settings,
    spelled,
)
from legos_train.rollout.players.player_options import Flag, PlayerOptions
from legos_train.rollout.players.policy_kinds import policy_help
from legos_train.rollout.players.strategies import is_strategy, strategy_table, write_strategy

__all__ = [
    "PUBLISHED",
    "Cast",
    "Flag",
    "PlayerOptions",
    "fingerprint",
    "is_code",
    "is_endpoint",
    "is_strategy",
    "locate",
    "policy_help",
    "read_weights",
    "run_and_weights",
    "run_settings",
    "spelled",
    "strategy_table",
    "write_strategy",
]
