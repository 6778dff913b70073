"""Self-play training: actors and envs in an arena, credit from finished episodes, LoRA weights on MLX.

    from legos_train import Actor, Arena, TrainConfig, train

    arena = Arena()
    arena.add_env("KuhnPoker-v0")
    train(arena, TrainConfig(steps=50))

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legos_train.arena.arena import Arena, EpisodeRequest
    from legos_train.arena.artifact_store import ArtifactStore
    from legos_train.config.train_config import TrainConfig
    from legos_train.credit import (
        AgentTurnCredit,
        ConstantCredit,
        CreditAssigner,
        GiGPOCredit,
        GRPOCredit,
        HierarchicalGRPOCredit,
        MaxRLCredit,
        PerRoleNormCredit,
        RAECredit,
        ReinforceCredit,
        RLOOCredit,
        SamePromptCredit,
        TurnLevelCredit,
    )
    from legos_train.errors import ConfigError, TrainingError
    from legos_train.league import League
    from legos_train.model.backend import TrainerBackend
    from legos_train.players.actors import Actor
    from legos_train.run.loop import Result, train
    from legos_train.run.trainer import Trainer

_CREDIT = (
    *("AgentTurnCredit", "ConstantCredit", "CreditAssigner", "GiGPOCredit", "GRPOCredit", "HierarchicalGRPOCredit"),
    *("MaxRLCredit", "PerRoleNormCredit", "RAECredit", "ReinforceCredit", "RLOOCredit", "SamePromptCredit"),
    "TurnLevelCredit",
)
_HOME = {
    "Actor": "players.actors",
    "Arena": "arena.arena",
    "ArtifactStore": "arena.artifact_store",
    "ConfigError": "errors",
    "EpisodeRequest": "arena.arena",
    "League": "league",
    "Result": "run.loop",
    "TrainConfig": "config.train_config",
    "Trainer": "run.trainer",
    "TrainerBackend": "model.backend",
    "TrainingError": "errors",
    "train": "run.loop",
    **dict.fromkeys(_CREDIT, "credit"),
}

__all__ = [
    "Actor",
    "AgentTurnCredit",
    "Arena",
    "ArtifactStore",
    "ConfigError",
    "ConstantCredit",
    "CreditAssigner",
    "EpisodeRequest",
    "GRPOCredit",
    "GiGPOCredit",
    "HierarchicalGRPOCredit",
    "League",
    "MaxRLCredit",
    "PerRoleNormCredit",
    "RAECredit",
    "RLOOCredit",
    "ReinforceCredit",
    "Result",
    "SamePromptCredit",
    "TrainConfig",
    "Trainer",
    "TrainerBackend",
    "TrainingError",
    "TurnLevelCredit",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
