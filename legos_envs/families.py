"""The built-in environments in families, as the guide, the README and `legos envs list` show them."""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "Board, card and matrix games": (
        "KuhnPoker-v0",
        "LeducPoker-v0",
        "TicTacToe-v0",
        "ConnectFour-v0",
        "Nim-v0",
        "PigDice-v0",
        "MatrixGame-v0",
    ),
    "Bluff and trade": ("LiarsDice-v0", "SimpleNegotiation-v0", "Negotiation-v0"),
    "Argument and contest": ("Debate-v0", "RedBlue-v0", "HeadToHead-v0", "Tournament-v0", "EloArena-v0"),
    "Problems and proofs": (
        "GSM8K-v0",
        "Dataset-v0",
        "ProofVerification-v0",
        "CodeGen-v0",
        "ProposerSolver-v0",
        "SPICE-v0",
    ),
    "Working together": (
        "RefineLoop-v0",
        "PlanExecute-v0",
        "Amplification-v0",
        "EnsembleVote-v0",
        "SelfDistillation-v0",
    ),
}
"""Ids by family; a test compares them with the registry."""


def family_of(env_id: str) -> str | None:
    """The family of a built-in environment, None of any other."""
    return next((family for family, ids in FAMILIES.items() if env_id in ids), None)
