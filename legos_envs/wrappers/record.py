"""Transcripts of episodes, for storing and comparing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper


class RecordTranscript(BaseWrapper):
    """Keeps a transcript of the episode: `transcript()` is a JSON value that can be compared with a stored one."""

    def __init__(self, env: AECEnv):
        super().__init__(env)
        self._log: list[dict[str, str]] = []
        self._returns: dict[str, float] = {}
        self._start: dict[str, Any] = {}
        self._outcome: Any = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        self._begin(getattr(self.env, "seed", seed), options)

    def _begin(self, seed: Any, options: Mapping[str, Any] | None) -> None:
        self._start = {"seed": seed, "options": dict(options or {})}
        self._log = []
        self._returns = {agent: float(reward) for agent, reward in self.env._cumulative_rewards.items()}
        self._note_end()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Returns to a `state()` by replaying its actions, which also restores the transcript up to that point.

        Seats filled inside this wrapper replay their own actions.
        """
        env: Any = self.env
        bare = env.unwrapped
        mode, bare.render_mode = bare.render_mode, None
        try:
            env.restore({**state, "log": []})
            self._begin(state["seed"], state["options"])
            for agent, action in state["log"]:
                if agent in env.possible_agents:
                    if env.agent_selection != agent:
                        env.select(agent)
                    self.step(action)
        finally:
            bare.render_mode = mode

    def step(self, action: Any) -> None:
        agent = self.env.agent_selection
        if self.env.terminations[agent] or self.env.truncations[agent]:
            self.env.step(action)
            return
        prompt = self.env.observe(agent)["messages"][-1]["content"]  # type: ignore[index]
        self.env.step(action)
        self._log.append({"agent": agent, "prompt": prompt, "action": action})
        for receiver, reward in self.env.rewards.items():
            self._returns[receiver] += float(reward)
        self._note_end()

    def _note_end(self) -> None:
        if all(self.env.terminations.values()):
            self._outcome = next((i["outcome"] for i in self.env.infos.values() if "outcome" in i), "terminated")
        elif all(self.env.truncations.values()):
            self._outcome = "truncated"
        else:
            self._outcome = None

    def transcript(self) -> dict[str, Any]:
        """`{"env", "seed", "options", "log": [{"agent", "prompt", "action"}], "returns", "outcome"}`.

        The prompt is the last message that the agent saw; the outcome is None during the episode.
        """
        record = {
            "env": str(self.env),
            **self._start,
            "log": self._log,
            "returns": self._returns,
            "outcome": self._outcome,
        }
        return json.loads(json.dumps(record))
