"""The interface of rules: seats, asks, rewards, and separate randomness."""

from legos_envs.table import strands
from legos_envs.table.rules import Ask, Forfeit, InvalidMove, Rules, Seat, Truncated, Unscored, keyed_generator
from legos_envs.table.table import Table

__all__ = [
    "Ask",
    "Forfeit",
    "InvalidMove",
    "Rules",
    "Seat",
    "Table",
    "Truncated",
    "Unscored",
    "keyed_generator",
    "strands",
]
