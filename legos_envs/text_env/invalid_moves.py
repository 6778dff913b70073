"""What an invalid move costs: constructor arguments, presets of them, and defaults."""

from __future__ import annotations

from typing import Any, NamedTuple

from legos_envs import arguments

PRESETS: dict[str, dict[str, Any]] = {
    # SPIRAL (Liu et al., 2025): an illegal move ends the game at once.
    "spiral": {"retries": 0, "reward": -1.5, "opponent_reward": 0.5},
}
"""Named sets of arguments; explicit arguments take precedence."""


class InvalidMoves(NamedTuple):
    """How often an agent may try again, and what it and each opponent gets when the last retry fails as well."""

    retries: int
    reward: float
    opponent_reward: float | None


def invalid_moves(preset: str | None, default_reward: float, **given: Any) -> InvalidMoves:
    """The arguments `given`, without their prefix `invalid_`; for those that are None, the preset's or the defaults.

    Raises:
        ValueError: the preset is unknown, or a value is out of range.
    """
    base = PRESETS[arguments.one_of("preset", preset, tuple(PRESETS))] if preset is not None else {}
    chosen = {"retries": 1, "reward": default_reward, "opponent_reward": None} | base
    chosen |= {key: value for key, value in given.items() if value is not None}
    share = chosen["opponent_reward"]
    return InvalidMoves(
        arguments.whole("invalid_retries", chosen["retries"], 0),
        arguments.real("invalid_reward", chosen["reward"]),
        None if share is None else arguments.real("invalid_opponent_reward", share),
    )
