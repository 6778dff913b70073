"""Steps all agents that can act at once: the PettingZoo parallel API for envs with `ready_agents`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv, ParallelEnv


class ParallelView(ParallelEnv[str, Any, str]):
    """An AEC text env as a `ParallelEnv`: a step takes the actions of all ready agents.

    `infos[agent]["ready"]` says whether the agent's next action counts. Actions of others are ignored, so code may act
    for everybody at every step. This is sound because stepping the ready agents in any order gives the same episode; a
    turn-based env has one ready agent per step. A turn limit reached within a step ends the episode there, and the
    remaining actions are not played.

    Args:
        env: an AEC text env that lists `ready_agents`, wrapped or not.

    Raises:
        TypeError: the env has no `ready_agents`, so it is unknown who may act concurrently.
    """

    def __init__(self, env: AECEnv):
        if not (hasattr(env, "ready_agents") and hasattr(env.unwrapped, "ready_agents")):
            raise TypeError(
                f"{env} has no ready_agents, so it cannot be known whose actions are independent. Accepted: a TextEnv, "
                f"wrapped or not; for strict turns there is pettingzoo.utils.turn_based_aec_to_parallel"
            )
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.metadata = {**env.metadata, "is_parallelizable": True}
        self.render_mode = getattr(env, "render_mode", None)
        self.agents: list[str] = []
        self._early: dict[str, float] = {}  # rewards paid before anybody could act here

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        return self.env.action_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.env.agents)
        self._early = {agent: float(self.env._cumulative_rewards[agent]) for agent in self.agents}
        return self._observations(), self._infos()

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Plays the actions of all ready agents.

        Returns:
            Observations, rewards (summed over the actions played; the first step includes rewards at reset),
            terminations, truncations and infos, each by agent.

        Raises:
            KeyError: a ready agent has no action.
            RuntimeError: no episode is running.
        """
        env = self.env
        if not self.agents:
            raise RuntimeError(f"{env}: step() before reset(), or after the end of the episode")
        ready = self._ready()
        if missing := [agent for agent in ready if agent not in actions]:
            raise KeyError(f"no action for {missing}; infos[agent]['ready'] says who must act")
        rewards = {agent: self._early.pop(agent, 0.0) for agent in self.agents}
        for agent in ready:
            if self._over():
                break
            if agent != env.agent_selection:
                env.select(agent)  # type: ignore[attr-defined]
            env.step(actions[agent])
            for receiver in rewards:
                rewards[receiver] += float(env.rewards[receiver])
        terminations = {agent: bool(env.terminations[agent]) for agent in self.agents}
        truncations = {agent: bool(env.truncations[agent]) for agent in self.agents}
        result = self._observations(), rewards, terminations, truncations, self._infos()
        if self._over():
            while env.agents:
                env.step(None)
            self.agents = []
        return result

    def _ready(self) -> list[str]:
        return [] if self._over() else list(self.env.ready_agents)  # type: ignore[attr-defined]

    def _over(self) -> bool:
        """Whether the episode has ended; in these envs all agents end together."""
        env = self.env
        return not env.agents or env.terminations[env.agent_selection] or env.truncations[env.agent_selection]

    def _observations(self) -> dict[str, Any]:
        return {agent: self.env.observe(agent) for agent in self.agents}

    def _infos(self) -> dict[str, dict[str, Any]]:
        ready = self._ready()
        return {agent: {**self.env.infos[agent], "ready": agent in ready} for agent in self.agents}

    def render(self) -> Any:
        return self.env.render()

    def state(self) -> Any:
        return self.env.state()

    def close(self) -> None:
        self.env.close()

    def __str__(self) -> str:
        return f"ParallelView<{self.env}>"
