"""A turn limit for any AEC env, over all agents or per agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import BaseWrapper

from legos_envs import arguments


class TurnLimit(BaseWrapper):
    """Truncates the episode for everybody when turns run out.

    Every action counts, even an invalid one. Rewards up to then are kept, but the env's rules get no chance to settle
    anything. They do with a `TextEnv`'s own limit, `max_turns`: use that for all agents together, and this wrapper for
    a limit per agent, for the seats left by other wrappers, or for foreign envs.

    Args:
        env: any AEC env whose agents all end together.
        turns: maximum number of actions by all agents together.
        per_agent: maximum number of actions by each agent; the episode ends when an agent that has none left would have
            to act.

    Raises:
        ValueError: neither limit is given, or one is below 1.
    """

    def __init__(self, env: AECEnv, *, turns: int | None = None, per_agent: int | None = None):
        super().__init__(env)
        if turns is None and per_agent is None:
            raise ValueError("TurnLimit needs turns=..., per_agent=..., or both")
        self.turns = None if turns is None else arguments.whole("turns", turns, 1)
        self.per_agent = None if per_agent is None else arguments.whole("per_agent", per_agent, 1)
        self._taken: Counter[str] = Counter()
        self._cut: dict[str, Any] | None = None  # the AEC attributes of an episode truncated here

    def __getattr__(self, name: str) -> Any:
        cut = self.__dict__.get("_cut")
        return cut[name] if cut is not None and name in cut else super().__getattr__(name)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._taken.clear()
        self._cut = None
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        if self._cut is not None:
            self._leave(action)
            return
        agent = self.env.agent_selection
        if not self._dead(agent):
            self._taken[agent] += 1
        self.env.step(action)
        self._look()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Returns to a `state()`."""
        self._cut = None
        self.env.restore(state)  # type: ignore[attr-defined]
        self._taken = Counter(agent for agent, _ in state["log"] if agent in self.env.possible_agents)
        self._look()

    def _look(self) -> None:
        """Truncates if turns have run out before the end of the episode."""
        env = self.env
        if not env.agents or self._dead(env.agent_selection):
            return
        out = self.turns is not None and self._taken.total() >= self.turns
        if self.per_agent is not None:
            asked = getattr(env, "ready_agents", None) or [env.agent_selection]
            out = out or any(self._taken[agent] >= self.per_agent for agent in asked)
        if out:
            agents = list(env.agents)
            self._cut = {
                "agents": agents,
                "agent_selection": agents[0],
                "ready_agents": [],
                "rewards": dict(env.rewards),
                "_cumulative_rewards": dict(env._cumulative_rewards),
                "terminations": dict.fromkeys(agents, False),
                "truncations": dict.fromkeys(agents, True),
                "infos": {agent: _over(env.infos[agent]) for agent in agents},
            }

    def _leave(self, action: Any) -> None:
        """The single `None` step of an agent whose episode was truncated here."""
        cut = self._cut
        assert cut is not None
        if not cut["agents"]:
            raise RuntimeError(f"{self}: step() after every agent has left the episode; call reset()")
        if action is not None:
            raise ValueError("when an agent is dead, the only valid action is None")
        agent = cut["agent_selection"]
        cut["agents"].remove(agent)
        for kept in ("rewards", "_cumulative_rewards", "terminations", "truncations", "infos"):
            del cut[kept][agent]
        cut["rewards"] = dict.fromkeys(cut["rewards"], 0.0)
        if cut["agents"]:
            cut["agent_selection"] = cut["agents"][0]

    def _dead(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])


def _over(info: Mapping[str, Any]) -> dict[str, Any]:
    """The final info of an agent, without anything left to choose."""
    kept = {key: value for key, value in info.items() if key != "action_mask"}
    return {**kept, "legal_actions": None, "outcome": "truncated"}
