"""Games as they will be once the policy no longer makes invalid moves: longer, so slower to play and to learn from."""

from __future__ import annotations

import random
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs import parsing
from legos_train.rollout import LocalGenerator, Rollouts


class LegalMoves(BaseWrapper):
    """Plays a random legal action in place of an invalid one, wherever the env lists the legal ones."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._random = random.Random(seed)
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        env = self.env
        legal = (env.infos.get(env.agent_selection) or {}).get("legal_actions")
        if legal and isinstance(action, str) and not parsing.states_one_of(action, legal):
            action = self._random.choice(legal)
        env.step(action)


def play_legally(generator: LocalGenerator) -> None:
    """From now on, play without invalid moves. The learner still sees the tokens that the model sampled."""
    rollouts = generator.rollouts

    def make(label: str, **args: Any) -> AECEnv:
        return LegalMoves(rollouts.make_env(label, **args))

    generator.rollouts = Rollouts(make, rollouts.concurrency)
