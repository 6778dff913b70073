"""Envs as one would write them at first: much is wrong with them."""

import random

import numpy as np
from gymnasium.spaces import Dict, Discrete
from pettingzoo import AECEnv

from legos_envs.spaces import Chat, FreeText


class Naive(AECEnv):
    """High card with one round of betting, written as one would at first."""

    hidden_information = True
    metadata = {"name": "Naive-v0", "render_modes": ["ansi"], "is_parallelizable": False}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = ["player_0", "player_1"]
        self.observation_spaces = {a: Dict({"messages": Chat()}) for a in self.possible_agents}
        self.action_spaces = {a: FreeText() for a in self.possible_agents}
        self.history = []
        self.callback = lambda text: text

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        random.seed(seed)
        self.agents = self.possible_agents[:]
        self.cards = random.sample(range(10), 2)
        self.stakes = 1
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {
            a: {"legal_actions": ("[bet]", "[check]"), "action_mask": ("[bet]", "[check]")} for a in self.agents
        }
        self.agent_selection = "player_0"

    def observe(self, agent):
        text = "\n".join([f"Cards: {self.cards}. Reply [bet] or [check].", *self.history])
        return {"messages": ({"role": "user", "content": text},)}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.history.append(f"{agent}: {action}")
        move = action.split("[")[1].split("]")[0]
        self.stakes += move == "bet"
        if agent == "player_1":
            winner = self.cards[1] > self.cards[0]
            self.rewards = {"player_0": -self.stakes if winner else self.stakes, "player_1": self.stakes * winner}
            self.terminations["player_0"] = True
            self.truncations["player_1"] = True
        else:
            self.agent_selection = "player_1"
        self._accumulate_rewards()

    def render(self):
        return "\n".join(self.history)

    def close(self):
        pass


class Numbers(Naive):
    """The same lifecycle for numbers instead of text."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_spaces = {a: Discrete(3) for a in self.possible_agents}
        self.action_spaces = {a: Discrete(2) for a in self.possible_agents}

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.infos = {a: {} for a in self.agents}

    def observe(self, agent):
        return np.int64(len(self.history) % 3)

    def step(self, action):
        super().step(None if action is None else ("[bet]", "[check]")[action])
