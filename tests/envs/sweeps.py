"""Sweeps over all environments that play many episodes: by default one stands for several that take long."""

from __future__ import annotations

from typing import Any

import pytest

import legos_envs

STANDS_FOR = {
    "HeadToHead-v0": ("Tournament-v0", "EloArena-v0"),
    "Dataset-v0": ("GSM8K-v0", "EnsembleVote-v0", "SelfDistillation-v0"),
    "Negotiation-v0": ("SimpleNegotiation-v0",),
    "Nim-v0": ("TicTacToe-v0", "ConnectFour-v0"),
    "KuhnPoker-v0": ("LiarsDice-v0", "PigDice-v0"),
}
"""The environment that is played, and its like, which are slow."""


def ids() -> list[Any]:
    """All registered ids for `parametrize`, marked."""
    slow = {id for like in STANDS_FOR.values() for id in like}
    assert slow | set(STANDS_FOR) <= set(legos_envs.registered())
    return [pytest.param(id, marks=[pytest.mark.slow] if id in slow else []) for id in legos_envs.registered()]
