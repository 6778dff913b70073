"""A game in numbers, for learners that read no text: PPO or DQN from any reinforcement learning library."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs import arguments, parsing
from legos_envs.spaces import Numbers

MASKS = ("observation", "info")


class Numeric(BaseWrapper):
    """An AEC env with `Discrete` actions and `Box` observations in place of texts.

    Every player sees exactly the information that the text gives, as numbers from -1 to 1 (named by `numbers.names`);
    action `i` plays `numbers.moves[i]`. `info["action_mask"]` is an int8 array with 1 at every legal action, all 0
    while it is not the agent's turn. An illegal action is handled like an illegal text (see `invalid_retries`);
    PettingZoo's `TerminateIllegalWrapper` may wrap this one. `FillSeats`, for seats filled with policies, belongs
    inside it.

    Args:
        env: an AEC text env, wrapped or not. All games of this package with finitely many moves work; other envs need a
            method `numbers` or the argument `numbers`.
        numbers: the conversion of texts to numbers; overrides the env's own.
        mask: `"observation"` for the observations `{"observation": Box, "action_mask": Box}` that PettingZoo's own
            games, Tianshou and RLlib have; `"info"` for a `Box` alone, as SuperSuit and Stable-Baselines3 want it.

    Raises:
        TypeError: no conversion of this env's texts to numbers is known.
        ValueError: `mask` is neither of the two.
    """

    def __init__(self, env: AECEnv, numbers: Numbers | None = None, *, mask: str = "observation"):
        super().__init__(env)
        self.mask = arguments.one_of("mask", mask, MASKS)
        bare: Any = env.unwrapped
        if numbers is None and not hasattr(bare, "numbers"):
            raise TypeError(
                f"{env} has no method numbers(), so nothing says how its texts become numbers. Accepted: a game "
                "that has one, such as KuhnPoker-v0; or Numeric(env, numbers=legos_envs.spaces.Numbers(...))"
            )
        self.numbers: Numbers = numbers or bare.numbers()
        style = getattr(bare, "action_format", "bracket")
        self._texts = parsing.write_actions(self.numbers.moves, style)
        self._place = {text: i for i, text in enumerate(self._texts)}
        self._shown: dict[str, tuple[Any, dict[str, Any]]] = {}  # by agent: the env's info, and the version shown
        count = len(self._texts)
        box = Box(-1.0, 1.0, (len(self.numbers.names),), np.float32)
        masked = Dict({"observation": box, "action_mask": Box(0, 1, (count,), np.int8)})
        self.observation_spaces = {a: masked if mask == "observation" else box for a in env.possible_agents}
        self.action_spaces = {agent: Discrete(count) for agent in env.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self.action_spaces[agent]

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """The env's infos with `action_mask` as an array."""
        return {agent: self._info(agent) for agent in self.env.infos}

    def observe(self, agent: str) -> Any:
        """The numbers of an agent in the episode, with its mask unless `mask="info"`."""
        messages: Any = self.env.observe(agent)
        text = "\n".join([m["content"] for m in messages["messages"] if m["role"] == "user"])
        seen = np.clip(np.array(self.numbers.read(text), np.float32), -1.0, 1.0)
        if self.mask == "info":
            return seen
        return {"observation": seen, "action_mask": self._info(agent)["action_mask"]}

    def step(self, action: Any) -> None:
        """Plays the move of a number; None for a dead agent.

        Raises:
            ValueError: the number is not that of a move.
        """
        if action is None:
            self.env.step(None)
            return
        self.env.step(self._texts[arguments.whole(f"{self.env}: an action", action, 0, len(self._texts) - 1)])

    def _info(self, agent: str) -> dict[str, Any]:
        """An agent's info with its mask; the same object as long as the env's is the same."""
        info = self.env.infos[agent]
        known, shown = self._shown.get(agent, (None, {}))
        if known is not info:
            mask = np.zeros(len(self._texts), np.int8)
            mask[[self._place[text] for text in info["legal_actions"] or ()]] = 1
            shown = {**info, "action_mask": mask}
            self._shown[agent] = info, shown
        return shown
